/**
 * The promises of `VpcProvider` as tests: every kind of cloud passes them, and the fake that the controller is tested on, so that results on the fake hold for
 * a cloud.
 *
 * Owns: the tests. Does not know: which cloud they run on. Only test files import this module.
 *
 * ```ts
 * providerContract("fake", async () => ({ provider: new FakeVpc(clock), ... }));
 * ```
 */
export { providerContract } from "./contract.ts";
