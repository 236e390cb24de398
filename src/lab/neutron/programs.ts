import { existsSync } from "node:fs";

/** The programs that the bed starts. */
export const PROGRAMS = {
  python: "/usr/bin/python3",
  server: "/usr/bin/neutron-server",
  agent: "/usr/bin/neutron-openvswitch-agent",
  dbManage: "/usr/bin/neutron-db-manage",
  broker: "/usr/lib/rabbitmq/bin/rabbitmq-server",
  database: "/usr/sbin/mariadbd",
  makeDatabase: "/usr/bin/mariadb-install-db",
  switch: "/usr/sbin/ovs-vswitchd",
  iptables: "/usr/sbin/iptables",
  ethtool: "/usr/sbin/ethtool",
} as const;

/** The Debian packages that have them. */
export const NEUTRON_PACKAGES =
  "neutron-server neutron-common neutron-openvswitch-agent openvswitch-switch rabbitmq-server mariadb-server python3-pymysql iptables ethtool";

/** The programs that are not installed. */
export function missingPrograms(): readonly string[] {
  return Object.values(PROGRAMS).filter((path) => !existsSync(path));
}
