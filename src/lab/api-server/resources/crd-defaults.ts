import { asArray, asObject, asString, isObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";

/** Fills in the names that a CustomResourceDefinition leaves to the server (apiextensions v1 defaults). */
export function prepareCrd(object: KubeObject): void {
  const spec = object["spec"];
  if (!isObject(spec)) return;
  const names = spec["names"];
  if (isObject(names)) {
    names["singular"] ??= asString(names["kind"]).toLowerCase();
    names["listKind"] ??= `${asString(names["kind"])}List`;
  }
  spec["conversion"] ??= { strategy: "None" };
  for (const version of asArray(spec["versions"])) {
    for (const column of asArray(asObject(version)["additionalPrinterColumns"])) {
      if (isObject(column) && column["priority"] === 0) delete column["priority"];
    }
  }
}
