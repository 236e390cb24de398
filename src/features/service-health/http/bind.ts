import { formatListenAddress, type ListenAddress } from "#base/config";
import { IpAddress } from "#base/ip";
import { ServiceHealthError } from "../errors.ts";
import { isFamilyMissing, type Listener, type ProbeHttp } from "./probe-http.ts";

const ANY = [IpAddress.parse("0.0.0.0"), IpAddress.parse("::")] as const;

/**
 * The addresses to bind. As in kube-proxy, the wildcard of one family means both families (docs/spec/service-proxy.md#1.1). Throws {@link
 * ServiceHealthError} `invalid-address` for a name. Pure.
 */
export function bindAddresses({ host, port }: ListenAddress): readonly IpAddress[] {
  if (host === undefined) return ANY;
  const address = IpAddress.tryParse(host);
  if (address === undefined) {
    const shown = formatListenAddress({ host, port });
    throw new ServiceHealthError(
      "invalid-address",
      `Cannot listen on ${shown}: "${host}" is not an IP address; an example is 0.0.0.0`,
    );
  }
  return address.isUnspecified ? ANY : [address];
}

/**
 * Listens on {@link bindAddresses}, with the same port for all addresses. If the host lacks one family, this is not an error as long as the
 * other family works. Throws {@link ServiceHealthError}, after all listeners were closed.
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
