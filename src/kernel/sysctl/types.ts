/**
 * Kernel settings under `net`, of one namespace. Keys are dotted (`net.ipv4.ip_forward`); if a part contains dots, as names of VLAN
 * interfaces do, use slashes as separators (`net/ipv4/conf/eth0.5/rp_filter`). Every method throws {@link KernelError}.
 */
export interface SysctlPort {
  /** The value without its line end. Throws `not-found` when there is no such key. */
  get(key: string): string;
  /** Throws `not-found`, `not-permitted`, or `invalid` for a value that the kernel refuses. */
  set(key: string, value: string | number): void;
}
