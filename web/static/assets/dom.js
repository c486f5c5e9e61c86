// Small helpers for pages that draw themselves from data. Text only ever enters as text, never as markup.

/**
 * el makes an element. props: `class`, `text`, `data` (dataset), `on` ({event: listener}); any other name is an attribute,
 * left out when its value is false, null or undefined.
 */
export function el(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === 'text') element.textContent = value;
    else if (name === 'data') Object.assign(element.dataset, value);
    else if (name === 'on') Object.entries(value).forEach(([type, listener]) => element.addEventListener(type, listener));
    else if (value !== false && value != null) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children);
  return element;
}

/** setText writes only what changed, so that a selection and a screen reader are left in peace. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * reconcile makes the children of container follow items: known ones are updated in place, so that focus stays.
 * key names an item; create returns its element; update fills it.
 */
export function reconcile(container, items, { key, create, update }) {
  const known = new Map([...container.children].map((child) => [child.dataset.key, child]));
  let previous = null;
  for (const item of items) {
    const name = key(item);
    let child = known.get(name);
    if (child) known.delete(name);
    else child = create(item);
    child.dataset.key = name;
    update(child, item);
    const place = previous ? previous.nextSibling : container.firstChild;
    if (child !== place) container.insertBefore(child, place);
    previous = child;
  }
  known.forEach((child) => child.remove());
}

/** duration says how long a time is, in the coarsest unit that still means something: "0.4 s", "12 s", "3 min". */
export function duration(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

/** plural puts a number before its noun. */
export function plural(count, noun) {
  return `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
}

/** wireCopyButtons makes each such button copy the text of the element that data-copy names by id. */
export function wireCopyButtons(root = document) {
  for (const button of root.querySelectorAll('[data-copy]')) {
    button.addEventListener('click', async () => {
      const text = document.getElementById(button.dataset.copy).textContent;
      // Without TLS, browsers have a clipboard on this machine's own pages only.
      const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
      setText(button, copied ? 'Copied' : 'Not allowed');
      setTimeout(() => setText(button, 'Copy'), 1500);
    });
  }
}
