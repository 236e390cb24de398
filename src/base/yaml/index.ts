/**
 * Configuration files in YAML, and in JSON, which is YAML as far as this goes.
 *
 * Owns: syntax, aliases and lines. Refuses to know: what a file must hold, which its reader's schema (valibot) says.
 *
 * ```ts
 * const document = parseYaml(text);
 * const { issues = [] } = v.safeParse(schema, document.value);
 * for (const issue of issues) report(document.lineOf(keysOf(issue)), issue.message);
 * ```
 */
export { parseYaml, type YamlDocument, YamlError, type YamlFault } from "./yaml.ts";
