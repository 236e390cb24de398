import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { Authenticator, Authorizer, UserInfo } from "./auth/auth.ts";
import type { AdmissionPlugin } from "./handlers/admission.ts";
import type { ReviewedTokens } from "./handlers/token-review.ts";
import type { KubeletAccess } from "./http/kubelet-request.ts";
import type { ServerCertificate } from "./http/tls.ts";
import type { ServiceRanges } from "./services/allocator.ts";
import type { ServiceResolver } from "./webhooks/call.ts";

/** A listener. `fd`: a socket that listens already (made in another network namespace); `host` is then the name for its URL. */
export type ListenAddress =
  | { readonly host: string; readonly port: number; readonly plain?: boolean }
  | { readonly fd: number; readonly host?: string; readonly plain?: boolean };

/** Settings of `startApiServer`. */
export interface ApiServerOptions {
  readonly listen: ListenAddress | readonly ListenAddress[];
  /** HTTPS on every listener that is not `plain`. `self-signed` makes a CA. Default: plain HTTP. */
  readonly tls?: "self-signed" | ServerCertificate | undefined;
  /** Further names and addresses for a self-signed certificate, beside those of `listen`, localhost and loopback. */
  readonly tlsHosts?: readonly string[] | undefined;
  /**
   * Bearer token to user. Without tokens every request is the administrator's; otherwise requests without one get 401. Roles, ClusterRoles
   * and their bindings give rights to users; members of `system:masters` may do everything.
   */
  readonly tokens?: Readonly<Record<string, UserInfo>> | undefined;
  /** Tokens that TokenReviews know. Default: none. */
  readonly reviewedTokens?: ReviewedTokens | undefined;
  /** Replaces the authenticator of `tokens`. */
  readonly authenticator?: Authenticator | undefined;
  /** Default: RBAC over the objects of this server. */
  readonly authorizer?: Authorizer | undefined;
  /** The connection to kubelets, for `pods/exec`, and to pods, for `pods/proxy`. Default: none, and both are refused. */
  readonly kubelets?: KubeletAccess | undefined;
  /** Ranges of Services' addresses and NodePorts. Default: 10.96.0.0/16, fd10:96::/112, 30000-32767. */
  readonly serviceRanges?: ServiceRanges | undefined;
  /** Admission plugins, which run in this order on each write. */
  readonly admission?: readonly AdmissionPlugin[] | undefined;
  /** The addresses of the Services of admission webhooks. Default: webhooks are not called, neither at Services nor at URLs. */
  readonly webhooks?: ServiceResolver | undefined;
  readonly log: Logger;
  readonly clock: Clock;
  /** Serve `/lab/faults`. Default false. */
  readonly faultsOverHttp?: boolean | undefined;
}
