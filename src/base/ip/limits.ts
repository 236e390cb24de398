/** The smallest MTU of a link with IPv6, in bytes (RFC 8200 section 5). Linux has no IPv6 on other links. */
export const MIN_IPV6_MTU_BYTES = 1280;
