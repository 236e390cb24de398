import assert from "node:assert/strict";
import { type AbortSignalLike, Deferred } from "#base/async";
import { FakeClock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import { DEFAULT_SETTINGS, type SelectionSettings, type Snapshot } from "#base/uplink-model";
import { type DnsAnswer, DnsError, type DnsUplink } from "../dns/index.ts";
import { destinationOf } from "../policy/index.ts";
import {
  type Closable,
  Dialler,
  type DialRequest,
  Penalties,
  Rotation,
  SegmentSizes,
  SelectError,
} from "../select/index.ts";
import { EvidenceLog } from "./proxy-fixtures.ts";

/** The result of a connect from a source: an errno, silence, success after a number of milliseconds, or when a gate opens. */
export type Behaviour = string | "silent" | number | Deferred;

/** A simulated connection. */
export class FakeConnection implements Closable {
  readonly source: string;
  readonly rttMs: number | undefined;
  isDestroyed = false;

  constructor(source: string, rttMs?: number) {
    this.source = source;
    this.rttMs = rttMs;
  }

  destroy(): void {
    this.isDestroyed = true;
  }
}

/** A dialler over sources with the behaviour that a test sets; `log` has each connect with its time. */
export class DiallerBed {
  readonly clock = new FakeClock();
  readonly evidence = new EvidenceLog();
  readonly log: string[] = [];
  readonly connections: FakeConnection[] = [];
  /** The failures of attempts whose request was served, as `uplink destination failure`. */
  readonly late: string[] = [];
  readonly penalties: Penalties;
  readonly rotation = new Rotation();
  readonly dialler: Dialler<FakeConnection>;
  readonly hosts = new Map<string, IpAddress[]>();
  readonly selection: SelectionSettings;
  resolve: (name: string, uplink: DnsUplink, signal: AbortSignalLike) => Promise<DnsAnswer> = async () => {
    throw new DnsError("failed", "no DNS in this test");
  };
  resolveNear: (name: string, isNear: (server: IpAddress) => boolean) => Promise<DnsAnswer> = async () => {
    throw new DnsError("failed", "no DNS in this test");
  };
  behaviours: Record<string, Behaviour>;
  /** The result of a connect from the sources that `behaviours` does not have. */
  behave: () => Behaviour = () => "silent";
  /** The round-trip time that is measured for a connect that took this time. */
  rttOf: (tookMs: number) => number | undefined = (tookMs) => tookMs;
  present: ReadonlySet<string> | "all" = "all";
  refreshes = 0;
  open = 0;

  constructor(behaviours: Record<string, Behaviour>, selection: Partial<SelectionSettings> = {}) {
    this.behaviours = behaviours;
    this.selection = { ...DEFAULT_SETTINGS.selection, ...selection };
    this.penalties = new Penalties(this.clock, this.selection);
    this.dialler = new Dialler<FakeConnection>({
      clock: this.clock,
      penalties: this.penalties,
      rotation: this.rotation,
      evidence: this.evidence,
      settings: () => this.selection,
      rttMs: ({ rttMs }) => rttMs,
      segments: new SegmentSizes(this.clock),
      hasAddress: (address) => this.present === "all" || this.present.has(address.toString()),
      failedLate: (target, { uplink, failure }) => void this.late.push(`${uplink} ${target} ${failure}`),
      refresh: () => {
        this.refreshes += 1;
      },
      dns: {
        hosts: async (name) => this.hosts.get(name) ?? [],
        cached: () => undefined,
        resolve: (name, way, { signal }) => this.resolve(name, way, signal),
        resolveNear: (name, { isNear }) => this.resolveNear(name, isNear),
      },
      connect: (pair, _port, { signal }) => this.#connect(pair.source?.toString() ?? "unbound", pair.address, signal),
    });
  }

  async #connect(source: string, address: IpAddress, signal: AbortSignalLike): Promise<FakeConnection> {
    this.log.push(`${this.clock.monotonic()} ${source}${address.family === 6 ? " v6" : ""}`);
    const behaviour = this.behaviours[source] ?? this.behave();
    if (typeof behaviour === "string" && behaviour !== "silent")
      throw Object.assign(new Error(behaviour), { code: behaviour });
    this.open += 1;
    try {
      const waiting = new Deferred();
      const onAbort = (): void => waiting.reject(signal.reason);
      signal.addEventListener("abort", onAbort, { once: true });
      if (behaviour === 0) waiting.resolve();
      else if (behaviour instanceof Deferred) behaviour.promise.then(() => waiting.resolve(), assert.fail);
      else if (typeof behaviour === "number") this.clock.after(behaviour, () => waiting.resolve());
      await waiting.promise;
    } finally {
      this.open -= 1;
    }
    const connection = new FakeConnection(source, typeof behaviour === "number" ? this.rttOf(behaviour) : undefined);
    this.connections.push(connection);
    return connection;
  }

  request(snapshot: Snapshot, fields: Partial<DialRequest> = {}, host = "203.0.113.80"): DialRequest {
    return {
      destination: destinationOf({ host, port: 443 }),
      snapshot,
      judge: () => "uplink",
      signal: new AbortController().signal,
      ...fields,
    };
  }

  /** Dials, and moves the clock until the outcome is known: `via`, or the error. */
  async outcome(request: DialRequest): Promise<string> {
    let text: string | undefined;
    this.dialler.dial(request).then(
      ({ uplink: via, connection }) => {
        text = `${via?.name ?? "direct"} from ${connection.source}`;
      },
      (error: unknown) => {
        text = error instanceof SelectError ? `${error.code}: ${error.message}` : String(error);
      },
    );
    for (let step = 0; step < 4000 && text === undefined; step += 1) await this.clock.advance(step === 0 ? 0 : 10);
    return text ?? "no outcome";
  }
}
