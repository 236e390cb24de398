/** The statuses of refusals. */
export type RefusalStatus = 400 | 405 | 431 | 505;

/** The reply to a request that cannot be served, to be sent before the connection is closed. */
export interface Refusal {
  readonly kind: "refused";
  readonly status: RefusalStatus;
  /** The body of the reply: one sentence of plain ASCII, without bytes of the client. */
  readonly body: string;
}

/** Makes a {@link Refusal}. */
export function refusal(status: RefusalStatus, body: string): Refusal {
  return { kind: "refused", status, body };
}
