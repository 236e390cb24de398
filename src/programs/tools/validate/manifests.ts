import { parseYamlStream, YamlError } from "#base/yaml";
import { COIL_GROUP, COIL_VERSION, type CoilAdmission, coilAdmission } from "#kube/coil";

/** The content of a file; `name` is `-` for standard input. */
export interface ManifestFile {
  readonly name: string;
  readonly text: string;
}

/** One fault of a file. */
export interface ManifestFault {
  readonly file: string;
  /** The number of the document in the file, from 1. */
  readonly document: number;
  /** The line in the file, from 1. */
  readonly line: number;
  /** The object, such as `AddressPool/default` or `Egress/internet/nat`; empty if the document is not an object. */
  readonly object: string;
  /** The path of the field, such as `spec.subnets[1].ipv4`; empty for the document as a whole. */
  readonly field: string;
  readonly message: string;
}

/** The outcome for all files. */
export interface ManifestReport {
  readonly faults: readonly ManifestFault[];
  /** Warnings: an API server would return them, and accept the object. */
  readonly warnings: readonly ManifestFault[];
  /** Objects that were checked. */
  readonly checked: number;
  /** Objects of other kinds, which were not checked. */
  readonly skipped: number;
}

/** Settings of {@link checkManifests}. */
export interface ManifestOptions {
  /** True: an object of an unchecked kind is a fault. */
  readonly strict?: boolean;
  /** True: the cluster's pods have both families. */
  readonly dualStack?: boolean;
}

type Unchecked = Readonly<Record<string, unknown>>;

/** An object with its place. */
interface Placed {
  readonly object: Unchecked;
  readonly title: string;
  readonly admission: CoilAdmission;
  readonly report: (field: string, message: string, to?: ManifestFault[]) => void;
  readonly warnings: ManifestFault[];
}

/**
 * Checks the objects of Coil in files of YAML or JSON as the webhooks and the CRDs would when they are created, each object is also
 * compared with all others in the files. Pure.
 */
export function checkManifests(
  files: readonly ManifestFile[],
  { strict = false, dualStack = false }: ManifestOptions = {},
): ManifestReport {
  const faults: ManifestFault[] = [];
  const warnings: ManifestFault[] = [];
  const objects: Placed[] = [];
  let skipped = 0;
  for (const { name: file, text } of files) {
    for (const [at, parsed] of parseYamlStream(text).entries()) {
      const document = at + 1;
      if (parsed instanceof YamlError) {
        for (const { line, message } of parsed.faults)
          faults.push({ file, document, line, object: "", field: "", message });
        continue;
      }
      for (const { value, path } of itemsOf(parsed.value)) {
        const title = isRecord(value) ? titleOf(value) : "";
        const report = (field: string, message: string, to = faults): void => {
          const line = parsed.lineOf([...path, ...keysOf(field)]);
          to.push({ file, document, line, object: title, field, message });
        };
        if (!isRecord(value)) {
          report("", "is not an object with apiVersion and kind");
          continue;
        }
        const { apiVersion, kind } = value;
        if (typeof apiVersion !== "string" || apiVersion === "") report("apiVersion", "Required value");
        else if (typeof kind !== "string" || kind === "") report("kind", "Required value");
        else if (!apiVersion.startsWith(`${COIL_GROUP}/`)) {
          skipped += 1;
          if (strict) report("kind", `${kind} of ${apiVersion} is not checked: remove the file, or remove --strict`);
        } else {
          const admission = apiVersion === `${COIL_GROUP}/${COIL_VERSION}` ? coilAdmission(kind) : undefined;
          if (admission !== undefined) objects.push({ object: value, title, admission, report, warnings });
          else report("apiVersion", `there is no kind ${kind} in ${apiVersion}: its version is ${COIL_VERSION}`);
        }
      }
    }
  }
  checkObjects(objects, dualStack);
  return { faults, warnings, checked: objects.length, skipped };
}

function checkObjects(objects: readonly Placed[], dualStack: boolean): void {
  const sound = objects.filter(({ admission, object }) => admission.structure(object).shape.length === 0);
  const ofKind = (kind: string): never[] =>
    sound.filter(({ admission }) => admission.type.kind === kind).map(({ object }) => object as never);
  const [pools, egresses] = [ofKind("AddressPool"), ofKind("Egress")];
  const seen = new Set<string>();
  for (const { object, title, admission, report, warnings } of objects) {
    const { name, generateName } = isRecord(object["metadata"]) ? object["metadata"] : {};
    if (typeof name === "string" && name !== "") {
      checkName(name, report);
      if (seen.has(title))
        report("metadata.name", `Duplicate value: ${JSON.stringify(name)}: the files contain the object twice`);
      seen.add(title);
    } else if (generateName === undefined && (name === undefined || name === ""))
      report("metadata.name", "Required value");
    const verdict = admission.check(object, undefined, { pools, egresses, dualStack });
    for (const { field, message } of verdict.faults) report(field, message);
    for (const field of admission.structure(object).unknown) {
      report(field, "unknown field: an API server drops it");
    }
    for (const text of verdict.warnings) {
      const [field = "", ...rest] = text.split(": ");
      report(field, rest.join(": "), warnings);
    }
  }
}

/** The names of all kinds of Coil are DNS subdomains (RFC 1123). */
function checkName(name: string, report: (field: string, message: string) => void): void {
  if (name.length <= 253 && /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/.test(name)) return;
  report(
    "metadata.name",
    `Invalid value: ${JSON.stringify(name)}: must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit`,
  );
}

/** The objects of a document: those of a List, else the document itself, or none if it is empty. */
function itemsOf(value: unknown): { readonly value: unknown; readonly path: readonly (string | number)[] }[] {
  if (value === null || value === undefined) return [];
  if (!isRecord(value) || typeof value["kind"] !== "string" || !value["kind"].endsWith("List"))
    return [{ value, path: [] }];
  const items = value["items"];
  if (!Array.isArray(items)) return [{ value, path: [] }];
  // An item of a typed list may lack apiVersion and kind, which follow from the list's kind.
  const { apiVersion, kind } = value;
  const inherited = kind === "List" ? {} : { apiVersion, kind: kind.slice(0, -"List".length) };
  return items.map((item: unknown, index) => ({
    value: isRecord(item) ? { ...inherited, ...item } : item,
    path: ["items", index],
  }));
}

function titleOf({ kind, metadata }: Unchecked): string {
  const { namespace, name, generateName } = isRecord(metadata) ? metadata : {};
  const named = typeof name === "string" ? name : typeof generateName === "string" ? `${generateName}*` : "";
  return [kind, namespace, named].filter((part) => typeof part === "string" && part !== "").join("/");
}

/** `spec.subnets[1].ipv4` as keys and indexes. */
function keysOf(field: string): string[] {
  return field.match(/[^.[\]]+/g) ?? [];
}

function isRecord(value: unknown): value is Unchecked {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
