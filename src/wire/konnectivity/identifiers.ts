import { ExpectedError } from "#base/errors";

/** Keys of agent identifiers, as `--agent-identifiers` spells them (docs/spec/tunnel.md#7.2). */
export const IDENTIFIER_KEYS = ["ipv4", "ipv6", "host", "cidr", "default-route"] as const;
export type IdentifierKey = (typeof IDENTIFIER_KEYS)[number];

/** The identifiers of an agent. */
export interface AgentIdentifiers {
  readonly ipv4: readonly string[];
  readonly ipv6: readonly string[];
  readonly host: readonly string[];
  readonly cidr: readonly string[];
  readonly defaultRoute: boolean;
}

export type IdentifiersErrorCode = "unknown-key" | "invalid";

/** The text of identifiers is invalid. */
export class IdentifiersError extends ExpectedError<IdentifiersErrorCode> {
  override readonly name = "IdentifiersError";
}

const TRUE = new Set(["1", "t", "T", "TRUE", "true", "True"]);
const FALSE = new Set(["0", "f", "F", "FALSE", "false", "False"]);

/**
 * Reads the form of a URL query. An agent refuses unknown keys of its flag; a server ignores them. Throws
 * {@link IdentifiersError} for a bad escape or a `default-route` that is not a Go bool, and, strictly, for unknown keys.
 */
export function parseIdentifiers(
  text: string,
  options: { readonly unknownKeys: "refuse" | "ignore" },
): AgentIdentifiers {
  const values: Record<IdentifierKey, string[]> = { ipv4: [], ipv6: [], host: [], cidr: [], "default-route": [] };
  for (const pair of text.split("&")) {
    if (pair === "") continue;
    const [name = "", ...rest] = pair.split("=");
    const key = queryUnescape(name, text);
    const list = IDENTIFIER_KEYS.find((known) => known === key);
    if (list !== undefined) values[list].push(queryUnescape(rest.join("="), text));
    else if (options.unknownKeys === "refuse") {
      throw new IdentifiersError(
        "unknown-key",
        `"${key}" is not an agent identifier: use ${IDENTIFIER_KEYS.join(", ")}`,
      );
    }
  }
  for (const word of values["default-route"]) {
    if (TRUE.has(word) || FALSE.has(word)) continue;
    throw new IdentifiersError("invalid", `default-route=${word}: "${word}" is neither true nor false`);
  }
  const { ipv4, ipv6, host, cidr } = values;
  return { ipv4, ipv6, host, cidr, defaultRoute: TRUE.has(values["default-route"][0] ?? "") };
}

/** Go's url.QueryUnescape. */
function queryUnescape(text: string, whole: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch (error) {
    throw new IdentifiersError("invalid", `agent identifiers "${whole}" have a bad %-escape`, { cause: error });
  }
}
