import type { IpAddress } from "#base/ip";

/** One end of a TCP connection. */
export interface ProxyEndpoint {
  readonly address: IpAddress;
  /** 0 to 65535. */
  readonly port: number;
}

/** The ends of the connection as the client sees it. */
export interface ProxiedConnection {
  /** The client. */
  readonly source: ProxyEndpoint;
  /** The address that the client connected to. */
  readonly destination: ProxyEndpoint;
}

export const SIGNATURE = Buffer.from("0d0a0d0a000d0a515549540a", "hex");
export const TCP_OVER_IPV4 = 0x11;
export const TCP_OVER_IPV6 = 0x21;
