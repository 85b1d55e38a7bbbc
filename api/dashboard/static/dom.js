// Elements, made without markup: text is only ever set as text, so a name cannot become code.

export const $ = (id) => document.getElementById(id);

/** el("p", {class: "sub", "aria-label": "…"}, "text", child) */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else node.setAttribute(name, String(value));
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

/** Set text only where it differs: a screen reader and a selection are left alone. */
export function setText(node, text) {
  const wanted = text === null || text === undefined ? "" : String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

export function replace(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

/** Keep the children of `parent` in the order of `keys`, made once by `make` and kept by key. */
export function keyed(parent, known, keys, make) {
  for (const [key, row] of known) {
    if (!keys.includes(key)) {
      row.node.remove();
      known.delete(key);
    }
  }
  let place = parent.firstChild;
  for (const key of keys) {
    let row = known.get(key);
    if (!row) known.set(key, (row = make(key)));
    if (row.node !== place) parent.insertBefore(row.node, place);
    else place = place.nextSibling;
  }
}

/** A select whose options are `[value, text]`; the choice survives where it can. */
export function setOptions(select, options, chosen) {
  const before = JSON.stringify([...select.options].map((option) => [option.value, option.text]));
  if (before !== JSON.stringify(options)) {
    replace(select, options.map(([value, text]) => el("option", { value }, text)));
  }
  if (select.value !== chosen) select.value = chosen;
}

let announced = "";

/** Tell people who listen to the page. */
export function announce(text) {
  if (text === announced) return;
  announced = text;
  $("announcer").textContent = text;
}

export function toast(text, kind = "good") {
  const node = el("div", { class: `toast ${kind}` }, text);
  $("toasts").append(node);
  announce(text);
  setTimeout(() => node.remove(), kind === "bad" ? 9000 : 4500);
  while ($("toasts").children.length > 3) $("toasts").firstChild.remove();
}
