import { formatListenAddress, type ListenAddress } from "#base/config";
import { IpAddress } from "#base/ip";
import { ServiceHealthError } from "../errors.ts";
import { isFamilyMissing, type Listening, type ProbeHttp } from "./probe-http.ts";

const ANY = [IpAddress.parse("0.0.0.0"), IpAddress.parse("::")] as const;

/**
 * Pure: the addresses to bind. "Any" of one family is any of both, as it is for kube-proxy, whose language binds so (spec
 * service-proxy 1.1). Throws {@link ServiceHealthError} `invalid-address` for a name.
 */
export function placesOf({ host, port }: ListenAddress): readonly IpAddress[] {
  if (host === undefined) return ANY;
  const address = IpAddress.tryParse(host);
  if (address === undefined) {
    const shown = formatListenAddress({ host, port });
    throw new ServiceHealthError(
      "invalid-address",
      `Cannot listen on ${shown}: "${host}" is not an IP address, such as 0.0.0.0`,
    );
  }
  return address.isUnspecified ? ANY : [address];
}

/**
 * Listens where {@link placesOf} says, with one port for all. A host without one of two families has the other. Throws
 * {@link ServiceHealthError}; nothing is listened on then.
 */
export function listenAll(http: Pick<ProbeHttp, "listen">, address: ListenAddress): readonly Listening[] {
  const places = placesOf(address);
  const held: Listening[] = [];
  let missing: unknown;
  try {
    for (const place of places) {
      try {
        held.push(http.listen(place, held[0]?.port ?? address.port));
      } catch (error) {
        if (places.length === 1 || !isFamilyMissing(error)) throw error;
        missing = error;
      }
    }
    if (held.length === 0) throw missing;
  } catch (error) {
    for (const listening of held) listening.close();
    throw error;
  }
  return held;
}
