// What a browser keeps for us. Storage may be switched off; then nothing is kept, and nothing fails.

export function kept(key, storage) {
  try {
    return storage.getItem(key);
  } catch {
    return null;
  }
}

export function keep(key, value, storage) {
  try {
    if (value) storage.setItem(key, value);
    else storage.removeItem(key);
  } catch {
    // it holds until the page is loaded again
  }
  return value;
}
