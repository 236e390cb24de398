import { ExpectedError } from "#base/errors";

/** Subprotocols in which a command's streams share one WebSocket, the preferred one first (k8s.io/apimachinery pkg/util/remotecommand). */
export const EXEC_PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"] as const;
export type ExecProtocol = (typeof EXEC_PROTOCOLS)[number];

/** First byte of each message: its channel. */
const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const ERROR = 3;
const RESIZE = 4;
/** v5: the second byte is the channel that has ended. */
const CLOSE = 255;
/** The largest width or height of a terminal. */
const MAX_TERMINAL = 10_000;

export type ExecErrorCode = "bad-request" | "not-found" | "bad-message" | "failed";

/** A command cannot be run, or a message of its client is not valid. */
export class ExecError extends ExpectedError<ExecErrorCode> {
  override readonly name = "ExecError";
}

/** A message of a client. */
export type ClientMessage =
  | { readonly kind: "stdin"; readonly bytes: Buffer }
  | { readonly kind: "stdin-end" }
  | { readonly kind: "resize"; readonly columns: number; readonly rows: number }
  | { readonly kind: "nothing" };

/** The result of a command that has ended. */
export interface Exit {
  /** `undefined` when a signal ended it. */
  readonly code: number | undefined;
  readonly signal?: string | undefined;
}

/** Reads one message. Throws {@link ExecError} `bad-message`. */
export function decodeClientMessage(protocol: ExecProtocol, message: Buffer): ClientMessage {
  const [channel] = message;
  // An empty message opens the connection with some clients.
  if (channel === undefined) return { kind: "nothing" };
  const bytes = message.subarray(1);
  if (channel === STDIN) return bytes.length === 0 ? { kind: "nothing" } : { kind: "stdin", bytes };
  if (channel === RESIZE) return { kind: "resize", ...terminalSize(bytes) };
  if (channel === CLOSE && protocol === "v5.channel.k8s.io") {
    if (bytes.length === 1 && bytes[0] === STDIN) return { kind: "stdin-end" };
    throw new ExecError("bad-message", `a client may close only channel ${STDIN}, not ${[...bytes.subarray(0, 8)]}`);
  }
  throw new ExecError("bad-message", `channel ${channel} may not be sent by clients of ${protocol}`);
}

/** `{"Width":80,"Height":24}`, as client-go writes it. */
function terminalSize(bytes: Buffer): { readonly columns: number; readonly rows: number } {
  const text = bytes.toString("utf8");
  try {
    const { Width: columns, Height: rows }: Record<string, unknown> = JSON.parse(text);
    if (isSize(columns) && isSize(rows)) return { columns, rows };
  } catch (error) {
    // Malformed JSON, or `null`, which has no members.
    if (!(error instanceof SyntaxError || error instanceof TypeError)) throw error;
  }
  throw new ExecError("bad-message", `${JSON.stringify(text.slice(0, 100))} is not a terminal size`);
}

function isSize(value: unknown): value is number {
  return Number.isInteger(value) && Number(value) >= 0 && Number(value) <= MAX_TERMINAL;
}

/** Output of a command. */
export function encodeOutput(stream: "stdout" | "stderr", bytes: Uint8Array): Buffer {
  return Buffer.concat([Buffer.of(stream === "stdout" ? STDOUT : STDERR), bytes]);
}

/** The last message: how the command ended, as a meta/v1 Status (kubelet pkg/kubelet/cri/streaming/remotecommand). */
export function encodeExit(exit: Exit): Buffer {
  return encodeStatus(statusOf(exit));
}

/** The last message of a command that could not be started. */
export function encodeFailure(message: string): Buffer {
  return encodeStatus({ metadata: {}, status: "Failure", message, reason: "InternalError", code: 500 });
}

function encodeStatus(status: object): Buffer {
  return Buffer.concat([Buffer.of(ERROR), Buffer.from(JSON.stringify(status))]);
}

function statusOf({ code, signal }: Exit): object {
  if (code === 0) return { metadata: {}, status: "Success" };
  // 137 is the code with which a shell reports a command that SIGKILL ended.
  const number = code ?? 137;
  const why = signal === undefined ? `exit status ${number}` : `signal: ${signal}`;
  return {
    metadata: {},
    status: "Failure",
    message: `command terminated with non-zero exit code: ${why}`,
    reason: "NonZeroExitCode",
    details: { causes: [{ reason: "ExitCode", message: String(number) }] },
  };
}
