// The operator key: asked for once, kept for this tab only, never left in the address bar.

const SLOT = 'berth.operator_key';

/** takeKey returns the key from the fragment #key=..., which it removes from the address, or the one kept, or ''. */
export function takeKey() {
  const given = new URLSearchParams(location.hash.slice(1)).get('key');
  if (given !== null) {
    history.replaceState(null, '', location.pathname + location.search);
    keepKey(given.trim());
  }
  return sessionStorage.getItem(SLOT) ?? '';
}

/** keepKey keeps the key until the tab is closed; '' forgets it. */
export function keepKey(key) {
  if (key) sessionStorage.setItem(SLOT, key);
  else sessionStorage.removeItem(SLOT);
}
