/**
 * The estate of a program: all that it owns, as data (docs/design/estate.md).
 *
 * Owns: the types, their text, the codec, and the file that a running daemon leaves. Does not know: any program, and how kernel objects are listed
 * or removed.
 *
 * ```ts
 * addToEstate("/run/isthmus/coild", "coild", { boot, netns, kernel: claims, files: ["/run/coild.sock"] }); // the daemon
 * const { sets, uid } = readEstate("/run/isthmus/coild", "coild"); // `isthmus uninstall`
 * const { kernel, refused } = acceptClaims(template, sets[0], { isRoots: uid === 0 });
 * ```
 */
export { acceptClaims } from "./accept.ts";
export { type ClaimKind, type ClaimOf, claimText, fixedPart, inSpan, type KernelClaim, type Span } from "./claims.ts";
export { decodeSets, encodeSets, MAX_ESTATE_BYTES, MAX_SETS } from "./codec.ts";
export { EstateError } from "./errors.ts";
export {
  endpoints,
  exitCodes,
  files,
  healthParts,
  kernel,
  listeners,
  objects,
  rights,
  type Section,
  section,
  signals,
} from "./sections.ts";
export { addToEstate, readEstate } from "./store.ts";
export { type ClaimSet, type Estate, type FileHolding, type Holding, NO_ESTATE } from "./types.ts";
