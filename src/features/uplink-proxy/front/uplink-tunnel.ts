import { LightAbortSignal } from "#base/async";
import type { ByteStream } from "#base/byte-stream";
import type { Entry, LinkedSet } from "#base/collections";
import type { TunnelSettings } from "#base/uplink-model";
import type { Destination } from "../policy/index.ts";
import { type CloseReason, Relay, type RelayEnd, type RelayEvents } from "../relay/index.ts";
import { type DialRequest, type DialResult, SelectError } from "../select/index.ts";
import { DIRECT } from "../stats/index.ts";
import { clientKindOf, dialRequestFor, type TunnelDeps, type TunnelRequest } from "./tunnel-request.ts";

/** Created once: an error captures the stack, which is expensive for each tunnel. */
const NO_REPLAY = new Error("the search for another uplink has ended");

/** A trial whose client has sent nothing that could be lost says nothing after this number of times of the blackhole's limit. */
const TRIAL_LIMITS = 2;

/** One tunnel with the uplink that it uses, and the uplinks that it has tried (docs/spec/uplink-proxy.md#6.4). */
export class UplinkTunnel implements RelayEvents {
  readonly #deps: TunnelDeps;
  readonly #request: TunnelRequest;
  readonly #relay: Relay;
  /** The entry of this tunnel in the list of the service's tunnels. */
  readonly #entry: Entry;
  #tried: Set<string> | undefined;
  #won: DialResult<ByteStream>;
  #replays = 0;
  /** The present uplink has swallowed bytes. */
  #isBlackholed = false;
  /** Stops the search for another uplink. */
  #stopReplay: LightAbortSignal | undefined;
  #cancelTrial: (() => void) | undefined;
  /** Time after which nothing is replayed, monotonic milliseconds. */
  #deadlineAt: number | undefined;

  constructor(deps: TunnelDeps, request: TunnelRequest, won: DialResult<ByteStream>, tunnels: LinkedSet<UplinkTunnel>) {
    this.#deps = deps;
    this.#request = request;
    this.#won = won;
    const { timer, traffic, settings } = deps;
    const { tunnel } = settings();
    const relayDeps = { timer, total: traffic.of(this.#ifName) };
    const { quietTimeoutMs, halfCloseTimeoutMs, firstByteTimeoutMs, bufferBytes, replayBytes } = tunnel;
    // The fields are not spread, because a spread takes as long as a system call for each tunnel.
    const options = {
      idleTimeoutMs: idleTimeoutOf(tunnel, request.destination),
      quietTimeoutMs,
      replay: request.replay,
      halfCloseTimeoutMs,
      firstByteTimeoutMs,
      bufferBytes,
      replayBytes,
    };
    this.#relay = new Relay(request.client, won.connection, relayDeps, options, this);
    this.#entry = tunnels.add(this);
  }

  /** The address that the tunnel is bound to, as text. */
  get source(): string | undefined {
    return this.#won.source?.toString();
  }

  /** The name of the tunnel's uplink; `undefined` if the main table routes the tunnel. */
  get uplink(): string | undefined {
    return this.#won.uplink?.name;
  }

  get #ifName(): string {
    return this.#won.uplink?.ifName ?? DIRECT;
  }

  start(early: readonly Uint8Array[]): void {
    this.#deps.rotation.started(this.#won.uplink?.name ?? DIRECT);
    this.#boundTrial();
    this.#relay.start(early);
  }

  close(reason: CloseReason): void {
    this.#stopReplay?.abort(NO_REPLAY);
    this.#relay.close(reason);
  }

  onFirstByte(): void {
    const { penalties, evidence } = this.#deps;
    this.#stopReplay?.abort(NO_REPLAY);
    const { uplink } = this.#won;
    if (uplink === undefined) return;
    penalties.clear(this.#request.destination.text, uplink.name);
    this.#endTrial();
    evidence.firstByte(uplink.name, this.#request.destination.text);
  }

  onBlackhole(): void {
    const { uplink } = this.#won;
    if (uplink === undefined) return;
    const { penalties, evidence, record, dialler, settings, clock } = this.#deps;
    const { text } = this.#request.destination;
    this.#isBlackholed = true;
    record({ kind: "blackhole", target: text, ifName: uplink.ifName });
    const { firstByteTimeoutMs } = settings().tunnel;
    evidence.blackholed(uplink.name, text, {
      clientKind: clientKindOf(this.#request.listener),
      waitedMs: firstByteTimeoutMs,
    });
    penalties.add(text, uplink.name, "blackhole");
    this.#endTrial();
    this.#tried = new Set([...(this.#tried ?? []), uplink.name]);
    this.#stopReplay = new LightAbortSignal();
    const request = { ...dialRequestFor(this.#request, this.#stopReplay, this.#deps), except: this.#tried };
    // Without another uplink the answer may still come over this one.
    if (!dialler.hasAlternative(request)) return;
    const { tunnel, selection } = settings();
    this.#deadlineAt ??= clock.monotonic() - tunnel.firstByteTimeoutMs + selection.requestTimeoutMs;
    if (!this.#relay.canReplay || this.#replays >= tunnel.maxReplays || clock.monotonic() >= this.#deadlineAt) {
      this.close("blackhole");
      return;
    }
    this.#replays += 1;
    this.#replay({ ...request, deadlineAt: this.#deadlineAt }).catch(this.#deps.onBug);
  }

  /** Tries the same uplink once more with small segments; if these are lost too, the uplink is left. */
  onLargeSegmentsLost(): void {
    const { uplink, maxSegmentBytes } = this.#won;
    if (uplink === undefined) return;
    const { segments, lines, snapshots } = this.#deps;
    const target = this.#request.destination.text;
    if (maxSegmentBytes !== undefined) {
      this.#leave();
      return;
    }
    if (segments.lower(uplink.name)) lines.smallSegments(target, uplink.ifName);
    if (!this.#relay.canReplay || this.#replays >= this.#deps.settings().tunnel.maxReplays) {
      this.close("blackhole");
      return;
    }
    this.#replays += 1;
    this.#stopReplay = new LightAbortSignal();
    const others = snapshots.current.uplinks.flatMap(({ name }) => (name === uplink.name ? [] : [name]));
    const request = { ...dialRequestFor(this.#request, this.#stopReplay, this.#deps), except: new Set(others) };
    this.#replay(request, () => this.#leave()).catch(this.#deps.onBug);
  }

  /** The uplink's path is of no use for the destination, with small segments either. */
  #leave(): void {
    if (this.#relay.bytes.down === 0) this.onBlackhole();
    else {
      const { uplink } = this.#won;
      if (uplink !== undefined) this.#deps.penalties.add(this.#request.destination.text, uplink.name, "blackhole");
      this.close("blackhole");
    }
  }

  onClosed({ reason, stalled, silentMs = 0 }: RelayEnd): void {
    const { penalties, evidence, record, lines, rotation, limiter, clock } = this.#deps;
    const { destination, startedAt } = this.#request;
    const { uplink } = this.#won;
    const { up, down } = this.#relay.bytes;
    const durationMs = clock.monotonic() - startedAt;
    this.#stopReplay?.abort(NO_REPLAY);
    this.#entry.remove();
    this.#endTrial();
    limiter.giveBack();
    rotation.ended(uplink?.name ?? DIRECT);
    if (reason === "idle") lines.idle(silentMs);
    if (stalled && uplink !== undefined) {
      // Of an upload that stalls nothing shows whether its packets are too large: the next one tries smaller ones.
      if (this.#won.maxSegmentBytes === undefined) this.#deps.segments.lower(uplink.name);
      penalties.add(destination.text, uplink.name, "stall");
      const clientKind = clientKindOf(this.#request.listener);
      evidence.stalled(uplink.name, destination.text, { clientKind, waitedMs: silentMs });
    }
    const isBlackholed = this.#isBlackholed && down === 0;
    const [target, ifName] = [destination.text, this.#ifName];
    record({ kind: "closed", target, ifName, up, down, durationMs, reason, isBlackholed, count: 1 });
    lines.closed(destination.text, this.#ifName, { up, down, durationMs, reason });
    this.#request.onClosed();
  }

  /** If the connection is a trial of its uplink, it is one for a while only: a client must not keep others from the uplink by its silence. */
  #boundTrial(): void {
    const { clock, settings } = this.#deps;
    if (this.#won.trial === undefined) return;
    this.#cancelTrial = clock.after(TRIAL_LIMITS * settings().tunnel.firstByteTimeoutMs, () => this.#endTrial());
  }

  #endTrial(): void {
    this.#cancelTrial?.();
    this.#won.trial?.end();
  }

  /** Dials another uplink, or the same one with small segments, while the first may still answer, and replaces the first uplink if no answer has come by then. */
  async #replay(request: DialRequest, onFailure?: () => void): Promise<void> {
    const { dialler, rotation, traffic, record, lines } = this.#deps;
    const target = this.#request.destination.text;
    try {
      const won = await dialler.dial(request);
      if (!this.#relay.canReplay || won.uplink === undefined || request.signal.aborted) {
        won.trial?.end();
        won.connection.destroy();
        return;
      }
      const from = this.#ifName;
      const to = won.uplink.ifName;
      record({ kind: "attempts", target, failures: won.failures });
      rotation.ended(this.#won.uplink?.name ?? DIRECT);
      rotation.started(won.uplink.name);
      this.#won = won;
      this.#isBlackholed = false;
      this.#boundTrial();
      if (from !== to) {
        record({ kind: "replayed", target, from, to });
        lines.replayed(target, from, to);
      }
      this.#relay.replaceUpstream(won.connection, traffic.of(to));
    } catch (error) {
      if (request.signal.aborted) return;
      if (!(error instanceof SelectError)) throw error;
      // No other uplink has connected: the answer may still come over the first, until the idle limit.
      record({ kind: "attempts", target, failures: error.failures });
      onFailure?.();
    }
  }
}

/** The override for the destination with its port takes precedence over the override for its host. */
function idleTimeoutOf(settings: TunnelSettings, { text, host }: Destination): number {
  const { idleTimeoutOverrides: overrides, idleTimeoutMs } = settings;
  // A host may have the name of a property that every object has: constructor, __proto__.
  if (Object.keys(overrides).length === 0) return idleTimeoutMs;
  const of = (key: string): number | undefined => (Object.hasOwn(overrides, key) ? overrides[key] : undefined);
  return of(text) ?? of(host) ?? idleTimeoutMs;
}
