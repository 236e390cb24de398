/** The cost of one step of an upgrade. */
export interface UpgradeStep {
  /** The place, and the build that its programs run from now. */
  readonly name: string;
  /** Programs that run from each build after the step. */
  readonly programs: { readonly before: number; readonly after: number };
  /** Pings between pods, sent from the begin of the step to its end. */
  readonly pings: { readonly sent: number; readonly lost: number };
  /** Flows that lost pings, each as `FROM -> TO: COUNT`. */
  readonly lostBy: readonly string[];
  /** Pods that were made, reached the others, and were deleted, each as `POD on NODE (BUILD)`. */
  readonly made: readonly string[];
  /** New connections that were opened after the step, and reached their server. */
  readonly opened: number;
  /** Ways through programs that the step replaces: the longest time in which no new connection succeeded, in milliseconds. */
  readonly outages: readonly { readonly way: string; readonly ms: number }[];
  /** The faults: of pods, new connections, addresses. */
  readonly faults: readonly string[];
  /** Findings of the audit. */
  readonly findings: readonly string[];
  readonly seconds: number;
}

/** A connection that is open from before the first step to after the last one; through a router or a proxy, until that is replaced. */
export interface LongConnection {
  readonly name: string;
  /** Numbered messages of the client, and those of the server that arrived. Each side checks that none is missing. */
  readonly sent: number;
  readonly received: number;
  /** The longest time without a message, in milliseconds; both sides send one every 50 ms. */
  readonly longestGapMs: number;
  /** The reason why it did not live; `null` if it did. */
  readonly fault: string | null;
}

/** The part of a report on a lab that was upgraded and rolled back. */
export interface UpgradeReport {
  readonly from: string;
  readonly to: string;
  readonly steps: readonly UpgradeStep[];
  readonly connections: readonly LongConnection[];
  /** Pods whose addresses were compared after each step. */
  readonly pods: number;
  readonly seconds: number;
}

/** Pure: no ping lost, every connection lived, every step without a fault and a finding. */
export function upgradeWorks({ steps, connections }: UpgradeReport): boolean {
  return steps.length > 0 && steps.every(stepWorks) && connections.length > 0 && connections.every(isAlive);
}

/** Pure: the report as lines. */
export function upgradeLines(
  report: UpgradeReport,
  {
    mark,
    cut,
  }: { readonly mark: (good: boolean) => string; readonly cut: (lines: readonly string[]) => readonly string[] },
): string[] {
  const { from, to, steps, connections, pods, seconds } = report;
  return [
    `     from ${from} to ${to} and back in ${seconds.toFixed(1)} s; ${pods} pods with their addresses compared after each step`,
    ...steps.flatMap((step) => [
      `${mark(stepWorks(step))} ${step.name}: ${step.pings.lost} of ${step.pings.sent} pings between pods lost; ${step.made.length} pods made and deleted, ${step.opened} new connections; audit: ${step.findings.length} findings; ${step.programs.before} programs of ${from}, ${step.programs.after} of ${to}; ${step.seconds.toFixed(1)} s`,
      ...step.outages.map(({ way, ms }) => `       ${way}: no new connection for ${ms} ms`),
      ...cut([...step.lostBy, ...step.faults, ...step.findings].map((text) => `       ${text}`)),
    ]),
    ...connections.map(
      (one) =>
        `${mark(isAlive(one))} connection ${one.name}: ${one.fault ?? "lived"}; ${one.sent} messages sent, ${one.received} received, none missing; longest time without one ${Math.round(one.longestGapMs)} ms`,
    ),
  ];
}

function stepWorks({ pings, faults, findings }: UpgradeStep): boolean {
  return pings.sent > 0 && pings.lost === 0 && faults.length === 0 && findings.length === 0;
}

function isAlive({ fault, received }: LongConnection): boolean {
  return fault === null && received > 0;
}
