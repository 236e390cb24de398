import { ExpectedError } from "#base/errors";

/** What came to the DNS server is no query with one question. */
export class DnsQueryError extends ExpectedError<"not-a-query"> {
  override readonly name = "DnsQueryError";
}
