// The API's operations, read from openapi.json and shown without anything from elsewhere.

import { $, el, replace, setText } from "./dom.js";

const METHODS = ["get", "put", "post", "delete"];

async function start() {
  const response = await fetch("openapi.json").catch(() => null);
  if (!response?.ok) {
    setText($("about"), "openapi.json cannot be read now.");
    return;
  }
  const spec = await response.json();
  setText($("about"), `${spec.info.description} Lists take limit and after. Errors are {"error": {"message", "type", "param", "code"}}.`);
  const groups = new Map();
  for (const [path, item] of Object.entries(spec.paths)) {
    for (const method of METHODS) {
      if (!item[method]) continue;
      const tag = item[method].tags?.[0] ?? "other";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operation(spec, path, method, item[method]));
    }
  }
  replace($("operations"), [...groups].flatMap(([tag, nodes]) => [el("h2", {}, tag), ...nodes]));
}

function operation(spec, path, method, described) {
  const parts = [];
  const parameters = described.parameters ?? [];
  if (parameters.length) {
    parts.push(fields(parameters.map((one) => [one.name, one.in, typeName(spec, one.schema), one.required, one.description])));
  }
  const asked = bodySchema(described.requestBody);
  if (asked) parts.push(el("h3", {}, "Body"), schemaFields(spec, asked));
  for (const [status, answer] of Object.entries(described.responses ?? {})) {
    if (!status.startsWith("2")) continue;
    parts.push(el("h3", {}, `Answer ${status}`));
    const schema = bodySchema(answer);
    parts.push(schema ? schemaFields(spec, schema) : el("p", { class: "sub" }, Object.keys(answer.content ?? {}).join(", ") || answer.description));
  }
  const errors = Object.entries(described.responses ?? {}).filter(([status]) => !status.startsWith("2"));
  parts.push(el("p", { class: "sub" }, `Errors: ${errors.map(([status, answer]) => `${status} ${answer.description}`).join(" ")}`));
  parts.push(el("pre", {}, curl(path, method, asked)));
  return el(
    "details",
    { class: "card operation" },
    el("summary", {}, el("span", { class: "method" }, method.toUpperCase()), el("code", {}, path), el("span", { class: "sub" }, described.description ?? "")),
    el("div", { class: "body" }, parts),
  );
}

const bodySchema = (part) => part?.content?.["application/json"]?.schema ?? null;

function resolve(spec, schema) {
  const name = schema?.$ref?.split("/").pop();
  return name ? spec.components.schemas[name] : schema;
}

function schemaFields(spec, schema) {
  const found = resolve(spec, schema);
  const properties = Object.entries(found?.properties ?? {});
  if (!properties.length) return el("p", { class: "sub" }, typeName(spec, schema));
  const required = new Set(found.required ?? []);
  return fields(properties.map(([name, one]) => [name, "", typeName(spec, one), required.has(name), one.description]));
}

function fields(rows) {
  const heads = ["Name", "In", "Type", "", ""];
  return el(
    "table",
    {},
    el("thead", {}, el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text)))),
    el(
      "tbody",
      {},
      rows.map(([name, place, type, required, text]) =>
        el("tr", {}, el("td", {}, el("code", {}, name)), el("td", {}, place), el("td", {}, type), el("td", {}, required ? "required" : ""), el("td", {}, text ?? "")),
      ),
    ),
  );
}

function typeName(spec, schema) {
  if (!schema) return "any";
  if (schema.$ref) {
    const found = resolve(spec, schema);
    return found.enum ? found.enum.join(" | ") : schema.$ref.split("/").pop();
  }
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.anyOf) return schema.anyOf.map((one) => typeName(spec, one)).join(" | ");
  if (schema.type === "array") return `list of ${typeName(spec, schema.items)}`;
  return schema.type ?? "any";
}

function curl(path, method, asked) {
  const parts = ["curl"];
  if (method !== "get") parts.push(`-X ${method.toUpperCase()} -H 'Authorization: Bearer ADMIN_KEY'`);
  if (asked) parts.push("-H 'Content-Type: application/json' -d '{…}'");
  parts.push(`'${location.origin}${path}'`);
  return parts.join(" ");
}

start();
