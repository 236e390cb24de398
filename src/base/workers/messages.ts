/** The orders of a leader to all workers: to end in order, to end sooner than that, to read their files again. */
export type Order = "end" | "hurry" | "reload";

/** From the leader to a worker. At most one question of a name waits for its answer. */
export type ToWorker =
  | { readonly kind: "order"; readonly order: Order }
  | { readonly kind: "question"; readonly question: string }
  /** A listening socket comes with it. `socket`: as `socketOf` names it. */
  | { readonly kind: "listener"; readonly socket: string }
  /** True if any other worker can serve clients. */
  | { readonly kind: "others"; readonly canServe: boolean };

/** From a worker to its leader. */
export type FromWorker =
  | { readonly kind: "started" }
  /** True if this worker can serve clients; not before it says so. */
  | { readonly kind: "serving"; readonly canServe: boolean }
  | { readonly kind: "answer"; readonly question: string; readonly answer: unknown };

/** The environment variable by which a process knows that it is a worker: `INDEX/COUNT`, from `1/2` on. */
export const WORKER_VARIABLE = "ISTHMUS_WORKER";

/** The first descriptor that a worker inherits: after the three standard ones and that of the channel. */
export const FIRST_DESCRIPTOR = 4;
