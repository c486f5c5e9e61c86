// Package web is what people see in a browser: the dashboard at / and, under berth dev, the demo at /demo.
//
// # Model
//
// The pages are static files, embedded as they are: HTML, CSS and ES modules, no build step, nothing from another host.
// They are clients of the API like any other. This package knows no session, no key and no database; what a page may
// do is decided where it asks.
//
//   - The dashboard asks a person for an operator key and keeps it for one browser tab. It reads GET /v1/workers,
//     GET /v1/sessions and GET /v1/capacity once a second, less often while they fail, and not while the page is hidden.
//   - The demo holds no key. POST /demo/sessions and POST /demo/kill belong to the API and exist under berth dev only,
//     and so does the page.
//
// # Where to look
//
// static/assets/session.js, connection.js and recovery.js are the client of a session: placed once, pinned to a worker,
// placed again when that worker is lost. They know nothing of the page, so that they can be read as an example and
// tested alone. voyage.js documents window.berthDemo, the state that end-to-end tests read. Each other module
// draws one part of a page.
//
// # Safety
//
// Every page has a content security policy without inline scripts or styles, and text enters the document only as text.
// The dashboard may connect to its own origin alone, since it holds an operator key. The demo may connect anywhere:
// workers have addresses of their own.
//
// Files carry an ETag of their content and are asked for again every time, so a new binary never meets old modules.
package web
