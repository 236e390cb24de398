/**
 * The flag that names further API servers, and the words of programs that find them themselves.
 *
 * Owns: these texts, apart from the Kubernetes client, so that a program that may need none does not load it. Does not know: how servers are chosen.
 */
export { apiServerFlag, FOLLOWED_SERVERS_NOTE } from "./api-server-flag.ts";
