import { CniCode, CniError } from "./errors.ts";

/** The supported versions of the configuration and result formats. */
export const SUPPORTED_VERSIONS = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] as const;
export type CniVersion = (typeof SUPPORTED_VERSIONS)[number];
export const HIGHEST_VERSION: CniVersion = "1.1.0";
/** The version of a configuration without `cniVersion` (CNI specification, "Version considerations"). */
export const ABSENT_VERSION = "0.1.0";

/** Negative, zero or positive, by the numbers of `major.minor.patch`. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [a, b].map((version) => version.split(".").map(Number));
  for (let at = 0; at < 3; at += 1) {
    const difference = (left?.[at] ?? 0) - (right?.[at] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** The text as a supported version. Throws {@link CniError} 1 that names the supported ones. */
export function requireVersion(version: string): CniVersion {
  const known = SUPPORTED_VERSIONS.find((supported) => supported === version);
  if (known !== undefined) return known;
  throw new CniError(CniCode.incompatibleVersion, `incompatible CNI version: the configuration says "${version}"`, {
    details: `supported versions: ${SUPPORTED_VERSIONS.join(", ")}`,
  });
}

/** The answer to VERSION; `asked` is echoed as the specification says. */
export function versionJson(asked: string | undefined): string {
  return JSON.stringify({ cniVersion: asked ?? HIGHEST_VERSION, supportedVersions: SUPPORTED_VERSIONS });
}
