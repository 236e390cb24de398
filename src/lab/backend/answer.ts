import { ExpectedError } from "#base/errors";
import { IpAddress } from "#base/ip";

/** The path whose answer ends at once. */
export const WHO_PATH = "/";
/** The path whose answer lasts `?ms=` milliseconds. */
export const SLOW_PATH = "/slow";

/** The address of the backend that answered, and the client address that it saw. */
export interface BackendAnswer {
  readonly backend: IpAddress;
  readonly client: IpAddress;
}

/** The received bytes are not the answer of a backend. */
export class BackendError extends ExpectedError<"not-a-backend"> {
  override readonly name = "BackendError";
}

/** Pure: parses the first line of a body. Throws {@link BackendError}. */
export function parseBackendAnswer(body: string): BackendAnswer {
  const [line = ""] = body.split("\n", 1);
  const [backend, client, ...rest] = line.split(" ").map((text) => IpAddress.tryParse(text));
  if (backend === undefined || client === undefined || rest.length > 0) {
    throw new BackendError(
      "not-a-backend",
      `no backend answered: "${line.slice(0, 80)}" is not a line with two addresses`,
    );
  }
  return { backend, client };
}

/** Pure: the line that {@link parseBackendAnswer} reads; IPv4-mapped addresses are written as IPv4. */
export function formatBackendAnswer(backend: string, client: string): string {
  const plain = (text: string): string => text.replace(/^::ffff:(?=\d+\.)/, "");
  return `${plain(backend)} ${plain(client)}\n`;
}
