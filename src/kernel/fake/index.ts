/**
 * A kernel in memory, for the tests of everything that programs one.
 *
 * Owns: {@link FakeKernel}, which passes the same contract suites as the real kernel's ports. Does not know: packets.
 *
 * ```ts
 * const kernel = new FakeKernel();
 * using pod = kernel.createNetNs("pod");
 * kernel.fail("routes.add", "unreachable"); // the next one fails
 * assert.match(kernel.dump({ name: "pod" }), /link eth0 veth/);
 * ```
 */
export { FakeKernel } from "./kernel.ts";
