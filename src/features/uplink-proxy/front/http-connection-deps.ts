import type { Clock } from "#base/clock";
import type { Readiness } from "#base/health";
import type { Settings } from "#base/uplink-model";
import type { ClientLimits } from "../policy/index.ts";
import type { LogLines, Recorder } from "../stats/index.ts";
import type { PendingHeads } from "./pending-heads.ts";
import type { PlainHttp } from "./plain-http.ts";
import type { TunnelService } from "./tunnel-service.ts";

/** Dependencies of client connections. */
export interface HttpConnectionDeps {
  readonly clock: Clock;
  readonly settings: () => Settings;
  readonly tunnelService: TunnelService;
  readonly pending: PendingHeads;
  /** Used if the settings have `plainHttp`. */
  readonly plainHttp?: PlainHttp | undefined;
  readonly clients: ClientLimits;
  readonly record: Recorder;
  readonly lines: Pick<LogLines, "wrongToken">;
  readonly isDraining: () => boolean;
  readonly tokens: () => readonly string[] | undefined;
  /** The body of GET /healthz. */
  readonly healthz: () => Promise<string>;
  /** The body of GET /metrics. */
  readonly metrics: () => Promise<string>;
  /** The answer of GET /readyz. */
  readonly readyz: (options: { readonly isVerbose: boolean }) => Promise<Readiness>;
  readonly onBug: (error: unknown) => void;
}
