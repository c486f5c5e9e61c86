// Package chromium lets tests look at pages in a real browser.
//
// A [Browser] is one headless Chromium that the tests of a binary share. It starts when the first test opens a tab and ends
// with Close, which TestMain calls. Tabs share nothing with each other: no cookies, no storage.
//
//	var browser = chromium.New(chromium.Config{})
//
//	func TestPage(t *testing.T) {
//		tab := browser.Open(t, time.Minute)
//		chromium.Do(t, tab, chromedp.Navigate(url))
//		chromium.Until(t, tab, 10*time.Second, `document.title === 'ready'`)
//	}
//
// Without a Chromium the tests fail, so that nothing is left out unseen. The variable CHROMIUM names one that is not on PATH.
package chromium
