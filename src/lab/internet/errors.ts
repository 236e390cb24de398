import { ExpectedError } from "#base/errors";

/** A packet to the DNS server is not a query with one question. */
export class DnsQueryError extends ExpectedError<"not-a-query"> {
  override readonly name = "DnsQueryError";
}
