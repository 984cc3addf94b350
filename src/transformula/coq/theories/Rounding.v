(* Floating-point arithmetic over Flocq: sums and dot products in any order, with or without FMA, and softmax tables.
   Stated for every rounding that is near (standard below), then for IEEE's binary64 and binary32, underflow included. *)
Require Import Reals Lra Lia ZArith List Permutation Psatz.
From Flocq Require Import Core Relative.
Import ListNotations.
Open Scope R_scope.

Fixpoint total (l : list R) : R := match l with [] => 0 | x :: l => x + total l end.
Definition size (l : list R) : R := total (map Rabs l).
Lemma total_app l m : total (l ++ m) = total l + total m.
Proof. induction l; simpl; [|rewrite IHl]; ring. Qed.
Lemma size_app l m : size (l ++ m) = size l + size m.
Proof. unfold size. now rewrite map_app, total_app. Qed.
Lemma total_perm l m : Permutation l m -> total l = total m.
Proof. induction 1; simpl; lra. Qed.
Lemma size_perm l m : Permutation l m -> size l = size m.
Proof. intros P. apply total_perm. now apply Permutation_map. Qed.
Lemma size_pos l : 0 <= size l.
Proof. induction l; unfold size in *; simpl; [lra|]. pose proof (Rabs_pos a). lra. Qed.
Lemma total_size l : Rabs (total l) <= size l.
Proof. induction l; unfold size in *; simpl; [rewrite Rabs_R0; lra|]. eapply Rle_trans; [apply Rabs_triang|]. lra. Qed.

Section Arithmetic.
Variable rnd : R -> R.
Variables u eta : R.  (* half a unit in the last place, relative to the number; and what underflow may cost *)
Hypothesis u_pos : 0 <= u.
Hypothesis eta_pos : 0 <= eta.
Hypothesis standard : forall x, Rabs (rnd x - x) <= u * Rabs x + eta.

(* The error of a result that at most k roundings reach one after the other, of c roundings in all. *)
Definition error (k c : nat) (s : R) : R := ((1 + u) ^ k - 1) * s + INR c * ((1 + u) ^ k * eta).
Lemma power_one n : 1 <= (1 + u) ^ n.
Proof. apply pow_R1_Rle. lra. Qed.
Lemma power_mono n m : (n <= m)%nat -> (1 + u) ^ n <= (1 + u) ^ m.
Proof. intros. apply Rle_pow; [lra|lia]. Qed.
Lemma error_mono k c s k' c' s' : (k <= k')%nat -> (c <= c')%nat -> 0 <= s <= s' -> error k c s <= error k' c' s'.
Proof.
  intros K C S. unfold error. pose proof (power_mono k k' K). pose proof (power_one k). pose proof (pos_INR c).
  apply le_INR in C. apply Rplus_le_compat.
  - apply Rmult_le_compat; lra.
  - apply Rmult_le_compat; [lra|apply Rmult_le_pos; lra|lra|apply Rmult_le_compat_r; lra].
Qed.
Lemma error_plus k c d s t : error k c s + error k d t = error k (c + d) (s + t).
Proof. unfold error. rewrite plus_INR. ring. Qed.

Lemma rounded_again x t s k c : Rabs (x - t) <= error k c s -> Rabs t <= s -> Rabs (rnd x - t) <= error (S k) (S c) s.
Proof.
  intros H T. pose proof (standard x) as R. pose proof (power_one k) as P.
  assert (X : Rabs x <= error k c s + s).
  { replace x with ((x - t) + t) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra. }
  replace (rnd x - t) with ((rnd x - x) + (x - t)) by ring. eapply Rle_trans; [apply Rabs_triang|].
  apply Rle_trans with (u * (error k c s + s) + eta + error k c s).
  { apply Rplus_le_compat; [|exact H]. apply Rle_trans with (1 := R). apply Rplus_le_compat_r, Rmult_le_compat_l; lra. }
  unfold error. rewrite S_INR. pose proof (power_one (S k)) as P'. simpl in *.
  assert (eta <= (1 + u) * (1 + u) ^ k * eta) by (rewrite <- (Rmult_1_l eta) at 1; apply Rmult_le_compat_r; lra).
  lra.
Qed.

(* A dot product: products rounded and added in any order and association; an FMA adds a product without rounding it.
   A sum is the dot product with ones. *)
Inductive dots : list (R * R) -> R -> Prop :=
| Product a b : dots [(a, b)] (rnd (a * b))
| Added l m x y : dots l x -> dots m y -> dots (l ++ m) (rnd (x + y))
| Fused l a b x : dots l x -> dots (l ++ [(a, b)]) (rnd (x + a * b))
| Reordered l m x : dots l x -> Permutation l m -> dots m x.
Definition products (l : list (R * R)) : list R := map (fun p => fst p * snd p) l.

Lemma dots_error l x : dots l x ->
  (1 <= length l)%nat /\ Rabs (x - total (products l)) <= error (length l) (2 * length l - 1) (size (products l)).
Proof.
  induction 1 as [a b|l m x y Hl [Ll IHl] Hm [Lm IHm]|l a b x Hl [Ll IHl]|l m x Hl [Ll IH] P].
  - split; [simpl; lia|]. simpl. rewrite Rplus_0_r.
    apply (rounded_again _ _ _ 0 0); [|unfold size; simpl; lra].
    unfold Rminus. rewrite Rplus_opp_r, Rabs_R0. unfold error, size. simpl. lra.
  - unfold products in *. rewrite app_length, map_app, total_app, size_app. split; [lia|].
    pose proof (size_pos (map (fun p => fst p * snd p) l)) as Sl. pose proof (size_pos (map (fun p => fst p * snd p) m)) as Sm.
    set (k := (length l + length m - 1)%nat).
    replace (length l + length m)%nat with (S k) by (unfold k; lia).
    replace (2 * S k - 1)%nat with (S ((2 * length l - 1) + (2 * length m - 1))) by (unfold k; lia).
    apply rounded_again.
    + rewrite <- error_plus. match goal with |- Rabs (x + y - (?s + ?t)) <= _ => replace (x + y - (s + t)) with ((x - s) + (y - t)) by ring end.
      eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat.
      * eapply Rle_trans; [exact IHl|]. apply error_mono; [unfold k; lia|lia|lra].
      * eapply Rle_trans; [exact IHm|]. apply error_mono; [unfold k; lia|lia|lra].
    + eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat; apply total_size.
  - unfold products in *. rewrite app_length, map_app, total_app, size_app. split; [simpl; lia|]. simpl length.
    pose proof (size_pos (map (fun p => fst p * snd p) l)) as Sl.
    replace (length l + 1)%nat with (S (length l)) by lia.
    apply Rle_trans with (error (S (length l)) (S (2 * length l - 1)) (size (map (fun p => fst p * snd p) l) + size (map (fun p => fst p * snd p) [(a, b)]))).
    + apply rounded_again.
      * replace (x + a * b - (total (map (fun p => fst p * snd p) l) + total (map (fun p => fst p * snd p) [(a, b)])))
          with (x - total (map (fun p => fst p * snd p) l)) by (simpl; ring).
        eapply Rle_trans; [exact IHl|]. apply error_mono; [lia|lia|]. pose proof (size_pos (map (fun p => fst p * snd p) [(a, b)])). lra.
      * eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat; apply total_size.
    + apply error_mono; [lia|lia|]. pose proof (size_pos (map (fun p => fst p * snd p) [(a, b)])). lra.
  - pose proof (Permutation_length P) as L. pose proof (Permutation_map (fun p => fst p * snd p) P) as Q.
    unfold products in *. rewrite <- L, <- (total_perm _ _ Q), <- (size_perm _ _ Q). auto.
Qed.

(* A softmax table. Of a token: the exact weight exp s, the computed one, the value. *)
Definition token := (R * R * R)%type.
Definition exact_weight (t : token) : R := fst (fst t).
Definition weight (t : token) : R := snd (fst t).
Definition held (t : token) : R := snd t.
Definition numerator (l : list token) : R := total (map (fun t => exact_weight t * held t) l).
Definition denominator (l : list token) : R := total (map exact_weight l).

Definition positive_weights (l : list token) : Prop := Forall (fun a => 0 < exact_weight a) l.
Definition near_weights (r t : R) (l : list token) : Prop :=
  Forall (fun a => Rabs (weight a - exact_weight a) <= r * exact_weight a + t) l.
Definition at_most (F : R) (f : token -> R) (l : list token) : Prop := Forall (fun a => Rabs (f a) <= F) l.
Definition off (r t : R) (l : list token) : R := r * denominator l + INR (length l) * t.

Lemma numerator_small V l : positive_weights l -> at_most V held l -> Rabs (numerator l) <= V * denominator l.
Proof.
  unfold numerator, denominator. induction l as [|a l IH]; simpl; intros P S; [rewrite Rabs_R0; lra|].
  inversion_clear P as [|? ? W W']. inversion_clear S as [|? ? B B']. specialize (IH W' B').
  eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_mult, (Rabs_pos_eq (exact_weight a)) by lra. nra.
Qed.

(* Sums of computed weights times factors that are at most F in size, against the same sum of exact weights. *)
Lemma weighted r t (f : token -> R) F l : 0 <= F -> positive_weights l -> near_weights r t l -> at_most F f l ->
  Rabs (total (map (fun a => weight a * f a) l) - total (map (fun a => exact_weight a * f a) l)) <= F * off r t l /\
  size (map (fun a => weight a * f a) l) <= F * (denominator l + off r t l).
Proof.
  intros HF. unfold off, denominator.
  induction l as [|a l IH]; intros P N S; [unfold size; simpl; rewrite Rminus_0_r, Rabs_R0; lra|].
  inversion_clear P as [|? ? W W']. inversion_clear N as [|? ? E E']. inversion_clear S as [|? ? B B'].
  destruct (IH W' E' B') as [IH1 IH2]. clear IH.
  change (length (a :: l)) with (S (length l)). rewrite S_INR. unfold size in *. simpl.
  assert (A : Rabs (weight a * f a - exact_weight a * f a) <= F * (r * exact_weight a + t)).
  { rewrite <- Rmult_minus_distr_r, Rabs_mult, Rmult_comm. apply Rmult_le_compat; auto using Rabs_pos. }
  assert (C : Rabs (weight a * f a) <= F * (exact_weight a + (r * exact_weight a + t))).
  { rewrite Rabs_mult, Rmult_comm. apply Rmult_le_compat; auto using Rabs_pos.
    replace (weight a) with ((weight a - exact_weight a) + exact_weight a) by ring.
    eapply Rle_trans; [apply Rabs_triang|]. rewrite (Rabs_pos_eq (exact_weight a)); lra. }
  split; [|lra].
  match goal with |- Rabs (?p + ?q - (?p' + ?q')) <= _ => replace (p + q - (p' + q')) with ((p - p') + (q - q')) by ring end.
  eapply Rle_trans; [apply Rabs_triang|]. lra.
Qed.

Section Table.
Variables r t V : R.  (* relative and absolute error of computed weights, largest value *)
Variable l : list token.
Hypothesis weights_positive : positive_weights l.
Hypothesis weights_near : near_weights r t l.
Hypothesis values_small : at_most V held l.
Notation n := (length l).
Notation off := (off r t l).

Lemma dot_of_weights (f : token -> R) F x : 0 <= F -> at_most F f l ->
  dots (map (fun a => (weight a, f a)) l) x ->
  Rabs (x - total (map (fun a => exact_weight a * f a) l)) <= error n (2 * n - 1) (F * (denominator l + off)) + F * off.
Proof.
  intros HF B D. destruct (dots_error _ _ D) as [_ E]. destruct (weighted r t f F l HF weights_positive weights_near B) as [W S].
  unfold products in E. rewrite map_map, map_length in E. simpl in E.
  match goal with |- Rabs (x - ?q) <= _ => match type of W with Rabs (?p - _) <= _ =>
    replace (x - q) with ((x - p) + (p - q)) by ring end end.
  eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat; [|exact W].
  eapply Rle_trans; [exact E|]. apply error_mono; [lia|lia|]. split; [apply size_pos|exact S].
Qed.

(* The computed table: two dot products and a division, each rounded; A and B bound the errors of the two. *)
Definition A : R := error n (2 * n - 1) (V * (denominator l + off)) + V * off.
Definition B : R := error n (2 * n - 1) (denominator l + off) + off.
Theorem table_error top bottom :
  dots (map (fun a => (weight a, held a)) l) top -> dots (map (fun a => (weight a, 1)) l) bottom -> 0 <= V ->
  B < denominator l ->
  Rabs (rnd (top / bottom) - numerator l / denominator l) <=
    (1 + u) * ((A + V * B) / (denominator l - B)) + u * V + eta.
Proof.
  intros T D HV Small.
  pose proof (dot_of_weights held V top HV values_small T) as HT. fold (numerator l) in HT. fold A in HT.
  assert (One : at_most 1 (fun _ => 1) l) by (apply Forall_forall; intros; rewrite Rabs_R1; lra).
  pose proof (dot_of_weights (fun _ => 1) 1 bottom Rle_0_1 One D) as HD.
  rewrite !Rmult_1_l in HD. fold B in HD.
  replace (total (map (fun a => exact_weight a * 1) l)) with (denominator l) in HD
    by (unfold denominator; f_equal; apply map_ext; intros; ring).
  pose proof (Rle_trans _ _ _ (Rabs_pos _) HD) as B0. pose proof (Rle_trans _ _ _ (Rabs_pos _) HT) as A0.
  pose proof (numerator_small V l weights_positive values_small) as N. pose proof (Rabs_le_inv _ _ HD) as HD1.
  set (d := denominator l) in *. set (m := numerator l) in *.
  assert (Q : Rabs (top / bottom - m / d) <= (A + V * B) / (d - B)).
  { replace (top / bottom - m / d) with (((top - m) * d - m * (bottom - d)) / (bottom * d)) by (field; lra).
    unfold Rdiv. rewrite Rabs_mult, Rabs_inv, (Rabs_pos_eq (bottom * d)) by nra.
    apply (Rmult_le_reg_r (bottom * d)); [nra|]. rewrite Rmult_assoc, Rinv_l by nra. rewrite Rmult_1_r.
    apply Rle_trans with ((A + V * B) * d).
    - eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_Ropp, !Rabs_mult, (Rabs_pos_eq d) by lra.
      assert (Rabs m * Rabs (bottom - d) <= V * d * B) by (apply Rmult_le_compat; auto using Rabs_pos).
      assert (Rabs (top - m) * d <= A * d) by (apply Rmult_le_compat_r; lra). lra.
    - rewrite Rmult_assoc. apply Rmult_le_compat_l; [nra|].
      apply (Rmult_le_reg_l (d - B)); [lra|]. rewrite <- Rmult_assoc, Rinv_r by lra. nra. }
  assert (M : Rabs (m / d) <= V).
  { unfold Rdiv. rewrite Rabs_mult, Rabs_inv, (Rabs_pos_eq d) by lra.
    apply (Rmult_le_reg_r d); [lra|]. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  pose proof (standard (top / bottom)) as R.
  assert (X : Rabs (top / bottom) <= (A + V * B) / (d - B) + V).
  { replace (top / bottom) with ((top / bottom - m / d) + m / d) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra. }
  replace (rnd (top / bottom) - m / d) with ((rnd (top / bottom) - top / bottom) + (top / bottom - m / d)) by ring.
  eapply Rle_trans; [apply Rabs_triang|].
  assert (u * Rabs (top / bottom) <= u * ((A + V * B) / (d - B) + V)) by (apply Rmult_le_compat_l; lra). lra.
Qed.
End Table.

(* An exponential within some units in the last place, at a score that is off by at most d. *)
Lemma exp_off s s' e d q t : Rabs (s' - s) <= d -> Rabs (e - exp s') <= q * exp s' + t -> 0 <= q ->
  Rabs (e - exp s) <= ((1 + q) * exp d - 1) * exp s + t.
Proof.
  intros S E Q. apply Rabs_le_inv in S. pose proof (exp_pos s) as P.
  assert (H : exp s' <= exp d * exp s) by (rewrite <- exp_plus; destruct (Req_dec s' (d + s)) as [->|]; [lra|left; apply exp_increasing; lra]).
  assert (L : exp s * (2 - exp d) <= exp s').
  { replace s' with (s + (s' - s)) by ring. rewrite exp_plus. apply Rmult_le_compat_l; [lra|].
    pose proof (exp_ineq1_le (s' - s)). pose proof (exp_ineq1_le d). lra. }
  replace (e - exp s) with ((e - exp s') + (exp s' - exp s)) by ring. eapply Rle_trans; [apply Rabs_triang|].
  assert (Rabs (exp s' - exp s) <= (exp d - 1) * exp s) by (apply Rabs_le; lra).
  assert (q * exp s' <= q * (exp d * exp s)) by (apply Rmult_le_compat_l; lra). lra.
Qed.
End Arithmetic.

(* IEEE's formats, rounded to nearest, ties to even. *)
Definition unit_of (p : Z) : R := / 2 * bpow radix2 (- p + 1).
Definition underflow_of (least : Z) : R := / 2 * bpow radix2 least.
Definition rounded (least p : Z) (x : R) : R := round radix2 (FLT_exp least p) ZnearestE x.
Lemma ieee_standard least p x : (0 < p)%Z ->
  Rabs (rounded least p x - x) <= unit_of p * Rabs x + underflow_of least.
Proof.
  intros P. destruct (error_N_FLT radix2 least p P (fun n => negb (Z.even n)) x) as (d & e & Hd & He & _ & H).
  unfold rounded. rewrite H. replace (x * (1 + d) + e - x) with (d * x + e) by ring.
  eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_mult. apply Rplus_le_compat; [|exact He].
  apply Rmult_le_compat_r; [apply Rabs_pos|exact Hd].
Qed.
(* A result within k units in the last place of a number: 2 k units of rounding, and as much underflow. *)
Lemma within_ulps least p k x y : (0 < p)%Z -> 0 <= k -> Rabs (y - x) <= k * ulp radix2 (FLT_exp least p) x ->
  Rabs (y - x) <= 2 * k * unit_of p * Rabs x + 2 * k * underflow_of least.
Proof.
  intros P K H. eapply Rle_trans; [exact H|]. unfold unit_of, underflow_of.
  assert (U : ulp radix2 (FLT_exp least p) x <= Rabs x * bpow radix2 (1 - p) + bpow radix2 least).
  { pose proof (bpow_gt_0 radix2 least). pose proof (bpow_gt_0 radix2 (1 - p)). pose proof (Rabs_pos x).
    destruct (Rle_or_lt (bpow radix2 (least + p - 1)) (Rabs x)) as [L|L].
    - pose proof (ulp_FLT_le radix2 least p x L). lra.
    - rewrite ulp_FLT_small; [nra|exact P|]. eapply Rlt_le_trans; [exact L|]. apply bpow_le. lia. }
  replace (- p + 1)%Z with (1 - p)%Z by ring. pose proof (Rmult_le_compat_l k _ _ K U). lra.
Qed.
Definition binary64 := rounded (-1074) 53.
Definition binary32 := rounded (-149) 24.
Lemma binary64_standard x : Rabs (binary64 x - x) <= unit_of 53 * Rabs x + underflow_of (-1074).
Proof. now apply ieee_standard. Qed.
Lemma binary32_standard x : Rabs (binary32 x - x) <= unit_of 24 * Rabs x + underflow_of (-149).
Proof. now apply ieee_standard. Qed.

(* One attention head in binary64, read as a table. Of a token: its exact score, the computed one, the computed
   exponential, the value. Stated hypotheses: scores are off by at most d, and exp is within 4 units in the last place. *)
Record read_token := Read { score : R; score_computed : R; exp_computed : R; value : R }.
Definition as_token (a : read_token) : token := (exp (score a), exp_computed a, value a).
Definition q64 : R := 8 * unit_of 53.
Theorem head_in_binary64 (l : list read_token) d V top bottom :
  let l' := map as_token l in let r := (1 + q64) * exp d - 1 in let t := 8 * underflow_of (-1074) in
  let A := A (unit_of 53) (underflow_of (-1074)) r t V l' in let B := B (unit_of 53) (underflow_of (-1074)) r t l' in
  Forall (fun a => Rabs (score_computed a - score a) <= d) l ->
  Forall (fun a => Rabs (exp_computed a - exp (score_computed a)) <=
                   4 * ulp radix2 (FLT_exp (-1074) 53) (exp (score_computed a))) l ->
  Forall (fun a => Rabs (value a) <= V) l -> 0 <= V ->
  dots binary64 (map (fun a => (exp_computed a, value a)) l) top ->
  dots binary64 (map (fun a => (exp_computed a, 1)) l) bottom ->
  B < total (map (fun a => exp (score a)) l) ->
  Rabs (binary64 (top / bottom) -
        total (map (fun a => exp (score a) * value a) l) / total (map (fun a => exp (score a)) l)) <=
    (1 + unit_of 53) * ((A + V * B) / (total (map (fun a => exp (score a)) l) - B)) + unit_of 53 * V + underflow_of (-1074).
Proof.
  intros l' r t A' B' Hs He Hv HV Ht Hb HB.
  assert (U : 0 <= unit_of 53) by (apply Rmult_le_pos; [lra|apply bpow_ge_0]).
  assert (E : 0 <= underflow_of (-1074)) by (apply Rmult_le_pos; [lra|apply bpow_ge_0]).
  assert (P : positive_weights l') by (apply Forall_map, Forall_forall; intros; apply exp_pos).
  assert (S : at_most V held l') by (apply Forall_map; exact Hv).
  assert (N : near_weights r t l').
  { apply Forall_map. rewrite Forall_forall in *. intros a I. unfold weight, exact_weight, as_token. simpl.
    apply (exp_off (score a) (score_computed a) (exp_computed a) d q64 t (Hs a I)); [|unfold q64; lra].
    pose proof (within_ulps (-1074) 53 4 _ _ eq_refl ltac:(lra) (He a I)) as W.
    rewrite (Rabs_pos_eq (exp (score_computed a))) in W by (left; apply exp_pos). unfold q64, t. lra. }
  pose proof (table_error binary64 (unit_of 53) (underflow_of (-1074)) U E binary64_standard r t V l' P N S top bottom) as T.
  unfold l', numerator, denominator in T. rewrite !map_map in T. cbv [as_token weight exact_weight held fst snd] in T.
  exact (T Ht Hb HV HB).
Qed.
