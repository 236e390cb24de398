import type { UplinkFault } from "#lab/topology";

/** One download through the proxy. */
export interface UplinkDownload {
  /** `healthy`, a fault, or `healed` after one. */
  readonly when: "healthy" | UplinkFault | "healed";
  /** The target: an address or a name. */
  readonly to: string;
  /** The uplink whose address the server saw; empty if the server got no request. */
  readonly uplink: string;
  /** The right uplink at that time. */
  readonly wanted: string;
  readonly bytes: number;
  readonly seconds: number;
  /** True if the client got the whole file and no error. */
  readonly ok: boolean;
  readonly error?: string;
}

/** The recovery from one fault. */
export interface UplinkRecovery {
  readonly fault: UplinkFault;
  /** The time from the fault until the end of the first complete download; `null`: no download was complete. */
  readonly seconds: number | null;
  /** The time from the end of the fault until the cheap uplink was used again. */
  readonly backSeconds: number;
}

/** The member `uplinks` of the report, with `isthmus lab --uplinks`. */
export interface UplinksReport {
  readonly node: string;
  readonly links: readonly { readonly name: string; readonly cost: number; readonly addresses: readonly string[] }[];
  readonly downloads: readonly UplinkDownload[];
  readonly recoveries: readonly UplinkRecovery[];
  /** Bytes by uplink as the proxy counts them, for these downloads and all other clients. */
  readonly carried: Readonly<Record<string, { readonly tunnels: number; readonly bytes: number }>>;
  readonly seconds: number;
}

/** Returns true if no download failed, each used the right uplink, and the proxy's counters agree. */
export function uplinksWork(report: UplinksReport): boolean {
  return report.downloads.length > 0 && report.downloads.every(isRight) && uncounted(report).length === 0;
}

/** Pure: uplinks for which the proxy counted fewer bytes than clients got. */
function uncounted({ downloads, carried }: UplinksReport): readonly string[] {
  const got = new Map<string, number>();
  for (const { uplink, bytes } of downloads) got.set(uplink, (got.get(uplink) ?? 0) + bytes);
  return [...got].filter(([uplink, bytes]) => (carried[uplink]?.bytes ?? 0) < bytes).map(([uplink]) => uplink);
}

/** The part of the report as text for users. `cut` shortens long lists. */
export function uplinksLines(
  report: UplinksReport,
  {
    mark,
    cut,
  }: { readonly mark: (good: boolean) => string; readonly cut: (lines: readonly string[]) => readonly string[] },
): string[] {
  const { node, links, downloads, recoveries, carried } = report;
  const wrong = downloads.filter((one) => !isRight(one));
  const missing = uncounted(report);
  return [
    `${mark(wrong.length === 0 && downloads.length > 0)} uplinks of ${node}: ${downloads.length - wrong.length} of ${downloads.length} downloads whole, without an error, over the right uplink of ${links.map(({ name, cost }) => `${name} (cost ${cost})`).join(" and ")}`,
    ...cut(wrong.map((one) => `       ${wrongLine(one)}`)),
    ...recoveries.map(
      ({ fault, seconds, backSeconds }) =>
        `       ${faultText(fault)}: ${seconds === null ? "no whole download" : `first whole download after ${seconds.toFixed(2)} s`}; after the repair the cheap uplink carries connections again within ${backSeconds.toFixed(2)} s`,
    ),
    `${mark(missing.length === 0)} carried: ${Object.entries(carried)
      .map(([name, { tunnels, bytes }]) => `${name} ${tunnels} tunnels, ${(bytes / 2 ** 20).toFixed(1)} MiB`)
      .join(
        "; ",
      )}${missing.length === 0 ? "" : `; these uplinks carried fewer bytes than clients received over them: ${missing.join(", ")}`}`,
  ];
}

function isRight({ ok, uplink, wanted }: UplinkDownload): boolean {
  return ok && uplink === wanted;
}

function wrongLine({ when, to, uplink, wanted, error }: UplinkDownload): string {
  return `${when}, ${to}: ${error ?? `carried by ${uplink === "" ? "none" : uplink} instead of ${wanted}`}`;
}

function faultText(fault: UplinkFault): string {
  switch (fault) {
    case "link-down":
      return "link down";
    case "gateway-dead":
      return "gateway dead";
    case "swallow":
      return "accepts and then drops packets";
  }
}
