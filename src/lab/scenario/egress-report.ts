/** One connection, the source that its server should see, and the one that it saw. */
export interface EgressTry {
  readonly from: string;
  readonly to: string;
  readonly wanted: string;
  readonly got: string;
  readonly ok: boolean;
}

/** A change of a live Egress. */
export interface LiveReport {
  readonly egress: string;
  readonly destination: string;
  /** The time from the change until a client reached the new destination through a router; `null`: never. */
  readonly seconds: number | null;
  /** True if a stream to another destination of the Egress ran on. */
  readonly streamRanOn: boolean;
}

/** The connects and streams while a router goes. */
export interface RouterLoss {
  readonly router: string;
  /** Streams when the router went. */
  readonly streams: number;
  /** Number of these streams that were through the router. */
  readonly own: number;
  /** Number of the router's own streams that ended. */
  readonly ownEnded: number;
  /** Number of streams of other routers that ended. */
  readonly othersEnded: number;
  readonly connects: number;
  readonly failed: readonly string[];
}

/** The report of a router that lost its power. */
export interface KillReport extends RouterLoss {
  /** The number of routers that the streams of one client went through, while there was no affinity. */
  readonly routersOfOne: number;
  /** The time from the loss until the start of the last connect that failed or took longer than half a second. */
  readonly failoverSeconds: number;
}

/** The report of a router whose pod was deleted. Its streams are counted while it drains. */
export interface DrainedReport extends RouterLoss {
  /**
   * Number of connects that started a second or more after the deletion and were through the router: their tunnel's source port, a hash, was
   * that of an earlier connection.
   */
  readonly stillThrough: number;
  /** Number of failed connects that started after the drain and before the pod was gone. They are not in `failed`. */
  readonly failedAtEnd: number;
  /** The time from the deletion until the pod was gone. */
  readonly seconds: number;
}

/** The report of an Egress that was scaled from one router to three and back to one. */
export interface ScaleReport extends Omit<RouterLoss, "router"> {
  /** Number of streams that ended before a router did. */
  readonly endedEarly: number;
  /** Number of routers that new connects were through while there were three. */
  readonly routersOfNew: number;
  /** As in {@link DrainedReport}. */
  readonly failedAtEnd: number;
  /** The time until three routers were ready, and until one was left. */
  readonly upSeconds: number;
  readonly downSeconds: number;
  /** The remains of the routers that went: routes, flows, links, address blocks, or changes in clients. */
  readonly left: readonly string[];
}

/** The member `egress` of the report, with `isthmus lab --egress`. */
export interface EgressReport {
  /** The tunnel driver that `auto` has chosen. */
  readonly driver: string;
  readonly routers: readonly { readonly name: string; readonly node: string; readonly addresses: readonly string[] }[];
  /** Every client, and pods without an Egress, to every host outside. */
  readonly tries: readonly EgressTry[];
  /** Every client to pods of the cluster. */
  readonly inCluster: readonly EgressTry[];
  readonly live: LiveReport;
  readonly kill: KillReport;
  readonly drain: DrainedReport;
  readonly scale: ScaleReport;
  readonly seconds: number;
}

/** The maximum time of a live change and of a failover, in seconds (docs/design/egress.md). */
const MOST_SECONDS = 1;

/** The maximum number of connects that may be under way through a router when it goes. */
const MOST_AT_END = 3;

/** Returns true if every try had the wanted source, the live change was in time, and routers that went cost what they may. */
export function egressWorks(report: EgressReport): boolean {
  return (
    triesWork(report.tries) &&
    triesWork(report.inCluster) &&
    liveWorks(report.live) &&
    killWorks(report.kill) &&
    drainWorks(report.drain) &&
    scaleWorks(report.scale)
  );
}

function triesWork(tries: readonly EgressTry[]): boolean {
  return tries.length > 0 && tries.every(({ ok }) => ok);
}

function liveWorks({ seconds, streamRanOn }: LiveReport): boolean {
  return streamRanOn && seconds !== null && seconds <= MOST_SECONDS;
}

/** Connects of the first second may fail, and only the router's own streams end. */
function killWorks({ own, othersEnded, connects, failoverSeconds }: KillReport): boolean {
  return own > 0 && connects > 0 && othersEnded === 0 && failoverSeconds <= MOST_SECONDS;
}

/** A connect that is under way through the router when its namespace goes may fail, as a stream would. */
function drainWorks({ own, ownEnded, othersEnded, connects, failed, failedAtEnd }: DrainedReport): boolean {
  const lost = ownEnded + othersEnded + failed.length;
  return own > 0 && connects > 0 && lost === 0 && failedAtEnd <= MOST_AT_END;
}

/** The streams of routers that went end with them, and nothing else does. */
function scaleWorks({
  own,
  endedEarly,
  othersEnded,
  connects,
  failed,
  failedAtEnd,
  routersOfNew,
  left,
}: ScaleReport): boolean {
  const lost = endedEarly + othersEnded + failed.length + left.length;
  return own > 0 && connects > 0 && routersOfNew === 3 && lost === 0 && failedAtEnd <= 2 * MOST_AT_END;
}

/** The part of the report as text for users. `cut` shortens long lists. */
export function egressLines(
  report: EgressReport,
  {
    mark,
    cut,
  }: { readonly mark: (good: boolean) => string; readonly cut: (lines: readonly string[]) => readonly string[] },
): string[] {
  const { routers, tries, inCluster, live, kill, drain, scale, driver } = report;
  const wrong = (all: readonly EgressTry[]): readonly string[] =>
    cut(
      all
        .filter(({ ok }) => !ok)
        .map(({ from, to, wanted, got }) => `       ${from} -> ${to}: wanted ${wanted}, got ${got}`),
    );
  const right = (all: readonly EgressTry[]): string => `${all.filter(({ ok }) => ok).length} of ${all.length}`;
  const inTime = live.seconds === null ? "never worked" : `worked after ${live.seconds.toFixed(2)} s`;
  return [
    `${mark(triesWork(tries))} egress by ${driver}, routers ${routers.map(({ name, addresses }) => `${name} (${addresses.join(" ")})`).join(", ")}: the outside saw the expected source in ${right(tries)} tries`,
    ...sourceLines(tries, cut),
    ...wrong(tries),
    `${mark(triesWork(inCluster))} traffic in the cluster passed no router: ${right(inCluster)} tries showed the client's own address`,
    ...wrong(inCluster),
    `${mark(liveWorks(live))} ${live.destination}, added to the live Egress ${live.egress}, ${inTime}; a stream to another destination ${live.streamRanOn ? "ran on" : "ended"}`,
    `${mark(killWorks(kill))} router ${kill.router} lost its power: new connects worked after ${kill.failoverSeconds.toFixed(2)} s; ${lossText(kill)}`,
    ...cut(kill.failed.map((text) => `       ${text}`)),
    `${mark(drainWorks(drain))} router ${drain.router} was drained in ${drain.seconds.toFixed(1)} s: ${lossText(drain)}`,
    `       ${drain.stillThrough} later connects were through it, by the source port of an earlier one, and ${drain.failedAtEnd} failed when it ended`,
    ...cut(drain.failed.map((text) => `       ${text}`)),
    `${mark(scaleWorks(scale))} Egress pair was scaled to three routers in ${scale.upSeconds.toFixed(1)} s and back to one in ${scale.downSeconds.toFixed(1)} s: ${lossText(scale)}`,
    `       new connects were through ${scale.routersOfNew} of 3 routers, ${scale.endedEarly} streams ended before their router, and ${scale.failedAtEnd} connects failed when routers ended`,
    ...cut([...scale.failed, ...scale.left].map((text) => `       ${text}`)),
  ];
}

/** One line for each pod: the sources that the hosts outside saw. */
function sourceLines(
  tries: readonly EgressTry[],
  cut: (lines: readonly string[]) => readonly string[],
): readonly string[] {
  const byPod = [...Map.groupBy(tries, ({ from }) => from)];
  return cut(
    byPod.map(([from, all]) => {
      const seen = all.filter(({ got }) => got !== NO_ANSWER).map(({ to, got }) => `${to} as ${got}`);
      return `       ${from}: ${seen.length === 0 ? "reaches none" : seen.join(", ")}`;
    }),
  );
}

function lossText({ streams, own, ownEnded, othersEnded, connects, failed }: Omit<RouterLoss, "router">): string {
  return `${failed.length} of ${connects} connects failed; of ${streams} streams ${own} were its own, of which ${ownEnded} ended, and ${othersEnded} others`;
}

/** The result of a try that no server answered. */
export const NO_ANSWER = "no answer";
