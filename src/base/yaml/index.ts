/**
 * Configuration files in YAML, and in JSON, which this reader accepts as YAML.
 *
 * Owns: syntax, aliases and lines. Does not know: the schema of a file (valibot), which its reader has.
 *
 * ```ts
 * const document = parseYaml(text);
 * const { issues = [] } = v.safeParse(schema, document.value);
 * for (const issue of issues) report(document.lineOf(keysOf(issue)), issue.message);
 * ```
 */
export { faultAt, faultsText } from "./faults.ts";
export {
  applyEdits,
  parseYamlSources,
  type YamlEdit,
  type YamlPath,
  type YamlSource,
} from "./source.ts";
export { parseYaml, parseYamlStream, type YamlDocument, YamlError, type YamlFault } from "./yaml.ts";
