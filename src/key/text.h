/*
 * text.h
 *		The digits of base32, as all forms of keys read them.
 */
#ifndef SNOWID_KEY_TEXT_H
#define SNOWID_KEY_TEXT_H

#define NO_DIGIT (-1)
#define SKIPPED (-2)

/* In either case, with O as 0, I and L as 1; a hyphen is skipped. */
static inline int
digit_of_base32(char c)
{
	static const int8 letters[] =
	{
		10, 11, 12, 13, 14, 15, 16, 17, 1, 18, 19, 1, 20,
		21, 0, 22, 23, 24, 25, 26, NO_DIGIT, 27, 28, 29, 30, 31
	};

	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'Z')
		return letters[c - 'A'];
	if (c >= 'a' && c <= 'z')
		return letters[c - 'a'];
	return c == '-' ? SKIPPED : NO_DIGIT;
}

#endif							/* SNOWID_KEY_TEXT_H */
