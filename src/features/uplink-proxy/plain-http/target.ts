import { parseHostPort } from "#wire/http-connect";
import type { PlainTarget } from "../front/index.ts";
import { destinationOf } from "../policy/index.ts";

/** Pure: the destination of an absolute `http://` target without a login, port 80 by default; `undefined` for any other. */
export function targetOf(target: string): PlainTarget | undefined {
  const match = /^http:\/\/([^/?#@]+)(\/[^#]*|\?[^#]*)?$/i.exec(target);
  if (match === null) return undefined;
  const [, authority = "", rest = "/"] = match;
  const parsed = parseHostPort(/:\d+$/.test(authority.replace(/^\[.*\]/, "")) ? authority : `${authority}:80`);
  if (parsed === undefined) return undefined;
  return { destination: destinationOf(parsed), path: rest.startsWith("?") ? `/${rest}` : rest };
}
