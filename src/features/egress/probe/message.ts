import { randomBytes } from "node:crypto";

/** A probe is a question of coild, and the router's answer repeats its token. */
export interface ProbeMessage {
  readonly kind: "question" | "answer";
  /** 16 random bytes as hex digits: who did not see the question cannot answer it. */
  readonly token: string;
}

const MAGIC = Buffer.from("isthmus-probe-1", "ascii");
const TOKEN_BYTES = 16;
const KINDS = { question: 0x51, answer: 0x41 } as const;
const LENGTH = MAGIC.length + 1 + TOKEN_BYTES;

/**
 * The UDP port of a router's probes: the one above the port of the tunnels, or below it where there is none above. `tunnelPort`: 1 to 65535.
 */
export function probePort(tunnelPort: number): number {
  return tunnelPort === 65_535 ? tunnelPort - 1 : tunnelPort + 1;
}

/** Returns a new token. */
export function newProbeToken(): string {
  return randomBytes(TOKEN_BYTES).toString("hex");
}

/** Pure: the bytes of a message (docs/spec/pod-network.md#7.8): `isthmus-probe-1`, `Q` or `A`, and the 16 bytes of the token. */
export function encodeProbe({ kind, token }: ProbeMessage): Buffer {
  return Buffer.concat([MAGIC, Uint8Array.of(KINDS[kind]), Buffer.from(token, "hex")]);
}

/** Pure: the message of a datagram; `undefined` for bytes that are none. */
export function decodeProbe(bytes: Buffer): ProbeMessage | undefined {
  if (bytes.length !== LENGTH || !bytes.subarray(0, MAGIC.length).equals(MAGIC)) return undefined;
  const token = bytes.subarray(MAGIC.length + 1).toString("hex");
  switch (bytes[MAGIC.length]) {
    case KINDS.question:
      return { kind: "question", token };
    case KINDS.answer:
      return { kind: "answer", token };
    default:
      return undefined;
  }
}

/**
 * Pure: a router's answer to a datagram, of the same length; `undefined` if it is no question. An answer is never answered, so two routers cannot send each other
 * packets for ever.
 */
export function answerTo(bytes: Buffer): Buffer | undefined {
  const message = decodeProbe(bytes);
  return message?.kind === "question" ? encodeProbe({ kind: "answer", token: message.token }) : undefined;
}
