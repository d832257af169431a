/*
 * secrets.h
 *		Files that hold a secret.
 */
#ifndef SNOWID_SECRETS_H
#define SNOWID_SECRETS_H

extern ssize_t secret_file_read(const char *path, char *buf, size_t size,
								char *err, size_t err_size);

#endif							/* SNOWID_SECRETS_H */
