import type { Address } from "#kernel/address";
import type { Link } from "#kernel/link";
import type { Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";

/** What happened in a namespace. */
export type MonitorEvent =
  | { readonly kind: "link"; readonly op: "new" | "delete"; readonly link: Link }
  | { readonly kind: "address"; readonly op: "new" | "delete"; readonly address: Address }
  | { readonly kind: "route"; readonly op: "new" | "delete"; readonly route: Route }
  | { readonly kind: "rule"; readonly op: "new" | "delete"; readonly rule: Rule }
  /** Events were lost: read the state anew. */
  | { readonly kind: "resync" };

/** What to watch. */
export interface MonitorTopics {
  readonly links?: boolean;
  readonly addresses?: boolean;
  readonly routes?: boolean;
  readonly rules?: boolean;
}

/** From main thread to Worker. */
export type ToWorker =
  | { readonly kind: "add"; readonly id: number; readonly fd: number }
  | { readonly kind: "remove"; readonly id: number }
  | { readonly kind: "stop" };

/** From Worker to main thread. */
export type FromWorker =
  | { readonly kind: "datagram"; readonly id: number; readonly bytes: Uint8Array }
  | { readonly kind: "overrun"; readonly id: number }
  /** The descriptor is no longer polled; the main thread closes it. */
  | { readonly kind: "removed"; readonly id: number }
  | { readonly kind: "failed"; readonly id: number; readonly message: string };

/** What the Worker is given at its start. */
export interface WorkerInit {
  readonly wakeFd: number;
  /** One cell: messages posted and not yet taken. */
  readonly inFlight: SharedArrayBuffer;
}

/** Above this many messages in flight the Worker lets the kernel queue, and in the end drop and say so. */
export const MAX_IN_FLIGHT = 1024;
