/** The number of times that an agent that ends by itself is started, until it counts as ended. */
const AGENT_STARTS = 10;

/**
 * Pure: a command that does what a host's service manager does with the program that programs the switch: Neutron's agent ends when it cannot make its bridges after a restart of the
 * switch, and `ovn-controller` 23.03 when the bridge is made while it starts.
 */
export function supervised(argv: readonly string[]): readonly string[] {
  const script = `for try in $(seq ${AGENT_STARTS}); do "$@"; echo "the agent ended with $?"; sleep 1; done`;
  return ["/bin/sh", "-c", script, "sh", ...argv];
}
