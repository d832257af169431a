/*
 * public_form.h
 *		The public form of a key, and the lines of the file with its secrets.
 */
#ifndef SNOWID_KEY_PUBLIC_FORM_H
#define SNOWID_KEY_PUBLIC_FORM_H

#define SECRETS 32				/* their numbers are digits of base32 */
#define SECRET_LEN 32			/* bytes; or half of it */
#define PREFIX_LEN 20
#define PUBLIC_DIGITS 16		/* with that of the secret's number */
#define PUBLIC_LEN (PREFIX_LEN + 1 + PUBLIC_DIGITS)

/*
 * A form of numerals: digits of a radix, so many of them, in two halves of 2^56 at
 * most, so that a sum of two, and a remainder and a byte, fit into 64 bits.
 */
typedef struct Ff1
{
	int			radix;
	int			length;
	uint64		modulus[2];		/* a half is a number below this */
	int			bytes;			/* that hold the greater half */
} Ff1;

/* An AES key, expanded.  It exists in OpenSSL's memory only. */
typedef struct evp_cipher_ctx_st Ff1Key;

/* The secrets of a file; without any, all is 0 but the writer. */
typedef struct Secrets
{
	Ff1Key	   *keys[SECRETS];	/* NULL: there is no such number */
	int			writer;			/* the number that writes; -1: none */
} Secrets;

/* The possible problems of a public form. */
typedef enum PublicProblem
{
	PUBLIC_GOOD,
	PUBLIC_OTHER_PREFIX,
	PUBLIC_NO_DIGIT,			/* at byte *detail, from 0 */
	PUBLIC_LENGTH,				/* it has *detail digits */
	PUBLIC_NO_SECRET,			/* with number *detail */
	PUBLIC_NOT_MADE,			/* with this prefix and secret *detail */
	PUBLIC_NO_CIPHER
} PublicProblem;

extern Ff1Key *ff1_key_new(const uint8 *bytes, int len);
extern bool ff1_crypt(const Ff1 *form, Ff1Key *key, const uint8 *tweak, int tweak_len,
					  bool encrypt, uint64 half[2]);
extern void secrets_free(Secrets *secrets);
extern const char *secrets_add_line(Secrets *secrets, const char *line);
extern bool public_prefix_is_good(const char *prefix, int len);
extern int	public_write(const Secrets *secrets, const char *prefix, int prefix_len,
						 int64 id, char *buf);
extern PublicProblem public_read(const Secrets *secrets, const char *prefix,
								 int prefix_len, const char *str, int len,
								 int64 *id, int *detail);

#endif							/* SNOWID_KEY_PUBLIC_FORM_H */
