import { ExpectedError } from "#base/errors";
import { IpAddress } from "#base/ip";

/** Answers at once. */
export const WHO_PATH = "/";
/** Answers for as long as `?ms=` says. */
export const SLOW_PATH = "/slow";

/** Who answered, and whom it saw. */
export interface BackendAnswer {
  readonly backend: IpAddress;
  readonly client: IpAddress;
}

/** What came is not what a backend says. */
export class BackendError extends ExpectedError<"not-a-backend"> {
  override readonly name = "BackendError";
}

/** Pure: the first line of a body. Throws {@link BackendError}. */
export function parseBackendAnswer(body: string): BackendAnswer {
  const [line = ""] = body.split("\n", 1);
  const [backend, client, ...rest] = line.split(" ").map((text) => IpAddress.tryParse(text));
  if (backend === undefined || client === undefined || rest.length > 0) {
    throw new BackendError("not-a-backend", `no backend answered: "${line.slice(0, 80)}" are not two addresses`);
  }
  return { backend, client };
}

/** Pure: the line that {@link parseBackendAnswer} reads; mapped addresses as the IPv4 addresses that they are. */
export function formatBackendAnswer(backend: string, client: string): string {
  const plain = (text: string): string => text.replace(/^::ffff:(?=\d+\.)/, "");
  return `${plain(backend)} ${plain(client)}\n`;
}
