import { DIAL_TIMEOUT_MS, type Settings } from "#base/uplink-model";
import { parseYaml, YamlError } from "#base/yaml";
import { checkTogether, checkValues, distinctUplinks, MAX_FAULTS } from "./check.ts";
import { UplinkConfigError } from "./errors.ts";
import { settingsOf } from "./fill.ts";

/** The settings of a valid file, perhaps without some of its uplinks. */
export interface ParsedSettings {
  readonly settings: Settings;
  /** Uplinks that conflict with an earlier one, each with the reason and what to do. */
  readonly refused: readonly string[];
  /** Remarks for the operator about settings that are not faults. */
  readonly notes: readonly string[];
}

/**
 * Pure: reads a configuration in JSON or YAML; `file` is its name in messages. Throws {@link UplinkConfigError} `invalid`
 * with every fault, by its path.
 */
export function parseSettings(source: string, file: string): ParsedSettings {
  const checked = checkValues(parseText(source, file));
  const faults = [...checked.faults, ...(checked.entry === undefined ? [] : checkTogether(checked.entry))];
  if (checked.entry === undefined || faults.length > 0) throw invalid(file, faults);
  const { entry } = checked;
  const { uplinks, refused } = distinctUplinks(entry.uplinks ?? []);
  const notes =
    entry.dialTimeoutMs === 0 ? [`dialTimeoutMs is 0; the default of ${DIAL_TIMEOUT_MS} ms is used instead`] : [];
  return { settings: settingsOf({ ...entry, uplinks }), refused, notes };
}

function parseText(source: string, file: string): unknown {
  try {
    return parseYaml(source).value;
  } catch (error) {
    if (!(error instanceof YamlError)) throw error;
    throw invalid(
      file,
      error.faults.map(({ line, message }) => `line ${line}: ${message}`),
    );
  }
}

function invalid(file: string, faults: readonly string[]): UplinkConfigError {
  const more = faults.length - MAX_FAULTS;
  const shown = faults.slice(0, MAX_FAULTS).join("; ");
  return new UplinkConfigError("invalid", `${file}: ${shown}${more > 0 ? `; and ${more} other faults` : ""}`);
}
