/** What a request of this module's kind can be refused with. */
export type RefusalStatus = 400 | 405 | 431 | 505;

/** Why a request cannot be served: the reply to give before the connection is closed. */
export interface Refusal {
  readonly kind: "refused";
  readonly status: RefusalStatus;
  /** One sentence of plain ASCII, free of bytes that the client sent: the body of the reply. */
  readonly body: string;
}

/** Makes a {@link Refusal}. */
export function refusal(status: RefusalStatus, body: string): Refusal {
  return { kind: "refused", status, body };
}
