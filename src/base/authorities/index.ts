/**
 * Which authorities a TLS client trusts, as Go's crypto/x509 reads them, so that a file works here as it works for kubectl.
 *
 * Owns: PEM bundles, the machine's own store, the options of Node's TLS for them, words for a certificate that is not trusted. Does not know: which
 * server is asked, where a bundle comes from.
 *
 * ```ts
 * const trust = trustIn(caText) ?? machineTrust();
 * connect({ host, port, ca: [...trust.ca], allowPartialTrustChain: true });
 * ```
 */
export { authoritiesOf, type Trust, trustIn } from "./bundle.ts";
export { distrustText } from "./distrust.ts";
export { machineTrust } from "./machine.ts";
