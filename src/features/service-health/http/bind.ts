import { formatListenAddress, type ListenAddress } from "#base/config";
import { IpAddress } from "#base/ip";
import { ServiceHealthError } from "../errors.ts";
import { isFamilyMissing, type Listener, type ProbeHttp } from "./probe-http.ts";

const ANY = [IpAddress.parse("0.0.0.0"), IpAddress.parse("::")] as const;

/**
 * Pure: the addresses to bind. "Any" of one family is any of both, as it is for kube-proxy, whose language binds so (spec
 * service-proxy 1.1). Throws {@link ServiceHealthError} `invalid-address` for a name.
 */
export function bindAddresses({ host, port }: ListenAddress): readonly IpAddress[] {
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
 * Listens where {@link bindAddresses} says, with one port for all. A host without one of two families has the other. Throws
 * {@link ServiceHealthError}; nothing is listened on then.
 */
export function listenAll(http: Pick<ProbeHttp, "listen">, address: ListenAddress): readonly Listener[] {
  const addresses = bindAddresses(address);
  const listeners: Listener[] = [];
  let missing: unknown;
  try {
    for (const one of addresses) {
      try {
        listeners.push(http.listen(one, listeners[0]?.port ?? address.port));
      } catch (error) {
        if (addresses.length === 1 || !isFamilyMissing(error)) throw error;
        missing = error;
      }
    }
    if (listeners.length === 0) throw missing;
  } catch (error) {
    for (const listener of listeners) listener.close();
    throw error;
  }
  return listeners;
}
