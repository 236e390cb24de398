/**
 * The version of this build.
 *
 * Owns: {@link VERSION}. Loads nothing.
 */

/** The version that the build has set; `0.0.0-source` if the program runs from its source. */
export const VERSION = process.env["ISTHMUS_VERSION"] ?? "0.0.0-source";
