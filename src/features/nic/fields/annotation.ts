import { parseYaml, YamlError } from "#base/yaml";
import { type FieldFault, invalid } from "#kube/crd";

/** The longest text of an annotation that is read, in bytes of UTF-8. */
export const MAX_ANNOTATION_BYTES = 16 * 1024;
/** The most lists and objects within each other. NICs need three, a machine with its resources four. */
const MAX_DEPTH = 16;

/** The path of an annotation in messages, as API servers write it. */
export function annotationPath(key: string): string {
  return `metadata.annotations[${key}]`;
}

/** The value of an annotation, or its faults. */
export type AnnotationValue = { readonly value: unknown } | { readonly faults: readonly FieldFault[] };

/**
 * Reads an annotation in JSON or YAML (docs/spec/vpc-nics.md#2): the core schema of YAML 1.2 without anchors, tags, directives and duplicate
 * keys. Pure; any text may be given.
 */
export function readAnnotation(key: string, text: string): AnnotationValue {
  const field = annotationPath(key);
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_ANNOTATION_BYTES) {
    const why = `must have at most ${MAX_ANNOTATION_BYTES} bytes`;
    return { faults: [invalid(field, `${bytes} bytes`, why)] };
  }
  let value: unknown;
  try {
    ({ value } = parseYaml(text, { plain: true }));
  } catch (error) {
    if (!(error instanceof YamlError)) throw error;
    const [first] = error.faults;
    const why = `is neither JSON nor YAML: line ${first?.line ?? 1}: ${first?.message ?? "not readable"}`;
    return { faults: [invalid(field, excerpt(text), why)] };
  }
  if (isDeeper(value, MAX_DEPTH)) {
    return {
      faults: [invalid(field, excerpt(text), `must have at most ${MAX_DEPTH} lists and objects in each other`)],
    };
  }
  return { value };
}

/** The beginning of a text that somebody else wrote, for a message. */
function excerpt(text: string): string {
  return text.length > 80 ? `${text.slice(0, 80)}...` : text;
}

/** Level by level, because a recursion could be as deep as the text is long. */
function isDeeper(value: unknown, limit: number): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth += 1) {
    const parents = level.filter((one) => typeof one === "object" && one !== null);
    if (parents.length > 0 && depth >= limit) return true;
    level = parents.flatMap((one) => Object.values(one as object));
  }
  return false;
}
