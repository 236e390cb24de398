import { fieldValues, type RequestHead } from "#wire/http-connect";

/** The words of all `Connection` fields, in lower case (RFC 9110 section 7.6.1). */
export function connectionWords(fields: RequestHead["fields"]): ReadonlySet<string> {
  const words = fieldValues({ fields }, "connection").flatMap((value) => value.toLowerCase().split(","));
  return new Set(words.map((word) => word.trim()));
}

/** Returns true if the connection stays open: HTTP/1.1 without `Connection: close`; HTTP/1.0 never. */
export function staysOpen(head: Pick<RequestHead, "version" | "fields">): boolean {
  return head.version !== "1.0" && !connectionWords(head.fields).has("close");
}
