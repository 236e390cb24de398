import type { LookupFunction } from "node:net";
import type { Names } from "./system-names.ts";

/** Makes the `lookup` option of Node.js's `connect`, so that Node.js resolves names with `names` and not with getaddrinfo(3). */
export function nodeLookup(names: Names, signal: AbortSignal): LookupFunction {
  return (host, { all, family }, callback) => {
    names.resolve(host, { signal }).then(
      (found) => {
        const wanted = family === 4 || family === 6 ? found.filter((address) => address.family === family) : found;
        const addresses = wanted.map((address) => ({ address: address.toString(), family: address.family }));
        const [first] = addresses;
        if (all === true) callback(null, addresses);
        else if (first !== undefined) callback(null, first.address, first.family);
        else callback(new Error("the name has no address of the wanted family"), "");
      },
      (error: unknown) => callback(error instanceof Error ? error : new Error(String(error)), ""),
    );
  };
}
